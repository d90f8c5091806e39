"""The steps of the owner's page, as a person goes through them."""

from __future__ import annotations

from tabs import Tab

PASSPHRASE = "seven quiet otters"
SEALED = "It lies on this machine until you send it."


def begin(tab: Tab, title: str, file: str) -> None:
    """Begin a project with a file of the list."""
    tab.page.get_by_label("What is it called?").fill(title)
    tab.page.get_by_role("button", name="Begin", exact=True).click()
    tab.page.wait_for_url("**/data")
    tab.click(file)


def ask_histogram(tab: Tab) -> None:
    """Ask for the ages by sex."""
    tab.page.wait_for_url("**/questions*")
    tab.page.locator("a[href='?ask=Histogram']").click()
    tab.page.get_by_label("Measurement", exact=True).select_option("age")
    tab.page.get_by_label("Groups", exact=True).select_option("sex")
    tab.click("Ask this")
    tab.is_told("The question was added")


def decide(tab: Tab) -> None:
    """Accept the columns and the plan."""
    tab.click("Go on to the columns")
    tab.click("This is right")
    tab.page.wait_for_url("**/plan")
    tab.click("Agreed")
    tab.page.wait_for_url("**/key")


def make_key(tab: Tab) -> None:
    """Make a key, and go to the next step."""
    tab.page.get_by_label("A passphrase for it").fill(PASSPHRASE)
    tab.page.get_by_label("The same again").fill(PASSPHRASE)
    tab.click("Make the key")
    tab.is_told("The key was made")
    tab.click("Go on")
    tab.page.wait_for_url("**/encrypt")


def encrypt(tab: Tab) -> None:
    """Encrypt all rows, and go to the next step."""
    tab.page.get_by_role("button", name="Encrypt", exact=True).click()
    tab.sees(SEALED)
    tab.click("Go on and send it")


def unlock(tab: Tab) -> None:
    """Type the passphrase."""
    tab.page.get_by_label("Passphrase of your key").fill(PASSPHRASE)
    tab.click("Unlock the key")
    tab.is_told("The key is unlocked")
