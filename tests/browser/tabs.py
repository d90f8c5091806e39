"""A tab of a browser, and what there is to say of every page in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from PIL import Image
from programs import PICTURES

LONG = 300_000  # milliseconds, on a machine that has other things to do
WIDE, NARROW = {"width": 1180, "height": 800}, {"width": 390, "height": 844}
TOO_WIDE = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
OFFENDERS = """() => [...document.querySelectorAll("main *")]
    .filter(one => one.getBoundingClientRect().right > innerWidth && !one.closest(".scroll *, svg *"))
    .map(one => one.outerHTML.slice(0, 120))"""
#: The pictures of the documents.
DRAWN = {
    "app-home", "app-columns", "app-question-narrow", "app-plan", "app-key", "app-send", "app-waiting-dark", "app-results",
    "worker-jobs", "worker-seen", "app-rounds", "app-trees", "app-study", "app-agreement",
    "app-invitations",
}  # fmt: skip
#: A field can be filled, and a button clicked, before the scripts of its page listen: what is
#: hidden
#: until they do is waited for. What is hidden gets no focus by itself.
HIDE_UNTIL_READY = """
    const hidden = new CSSStyleSheet();
    hidden.replaceSync("html { visibility: hidden !important; }");
    document.adoptedStyleSheets = [hidden];
    document.addEventListener("DOMContentLoaded", () => {
        document.adoptedStyleSheets = [];
        document.querySelector("[autofocus]")?.focus();
    });
"""
_IN_VIEW = """element => {
    const box = element.getBoundingClientRect();
    return box.top >= 0 && box.bottom <= innerHeight;
}"""


class Tab:
    """A tab of a browser."""

    def __init__(self, context: Any) -> None:
        self.page = context.new_page()
        self.page.set_default_timeout(LONG)
        self.complaints: list[str] = []
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def _heard(self, message: Any) -> None:
        # A refused form is answered by 422, or by 401 at the worker's, which Chromium calls an
        # error.
        if message.type == "error" and "status of 4" not in message.text:
            self.complaints.append(f"{self.page.url}: {message.text}")

    def look(self, name: str = "") -> None:
        """Look at a page: one heading, nothing cut off on a telephone, no complaint of the browser,
        and nothing that axe finds, in light and in dark colours.
        """
        page = self.page
        page.wait_for_load_state("load")
        assert page.locator("h1").count() == 1, page.url
        page.set_viewport_size(NARROW)
        too_wide = page.evaluate(TOO_WIDE)
        offenders = page.evaluate(OFFENDERS) if too_wide > 0 else []
        self._draw(f"{name}-narrow")
        page.set_viewport_size(WIDE)
        self._draw(name)
        self.check_accessible()
        page.emulate_media(color_scheme="dark")
        self._draw(f"{name}-dark")
        self.check_accessible("color-contrast")  # nothing else depends on colours
        page.emulate_media(color_scheme="light")
        assert too_wide <= 0, f"{page.url} is too wide: {offenders}"
        assert self.complaints == []

    def check_accessible(self, *rules: str) -> None:
        """Axe finds nothing against some of its rules, all of them by default."""
        options = {"runOnly": list(rules)} if rules else None
        found = Axe().run(self.page, options=options).response["violations"]
        said = [(one["id"], [node["html"] for node in one["nodes"]][:4]) for one in found]
        assert said == [], (self.page.url, said)

    def _draw(self, name: str) -> None:
        """A picture for the documents, if it is one of theirs and somebody asks for it."""
        if PICTURES and name in DRAWN:
            size = self.page.viewport_size
            tall = min(1300, self.page.evaluate("() => document.documentElement.scrollHeight"))
            clip = {"x": 0, "y": 0, "width": size["width"], "height": tall}
            path = Path(PICTURES) / f"{name}.png"
            self.page.screenshot(path=path, full_page=True, clip=clip)
            Image.open(path).convert("RGB").quantize(256, method=Image.Quantize.FASTOCTREE).save(
                path, optimize=True
            )

    def click(self, text: str) -> None:
        self.page.get_by_role("button", name=text).or_(
            self.page.get_by_role("link", name=text)
        ).first.click()

    def reload(self) -> None:
        """Load the page again; if it is on its way to the next one just then, when it is there."""
        for left in reversed(range(20)):
            try:
                self.page.reload()
                return
            except Exception as error:
                if "Not attached to an active page" not in str(error) or not left:
                    raise
                self.page.wait_for_timeout(100)

    def sees(self, text: str) -> None:
        """Wait until it is there; a failure says what is there instead."""
        found = self.page.get_by_text(text).locator("visible=true").first
        try:
            found.wait_for()
        except Exception as error:
            shown = " ".join(self.page.inner_text("main").split())
            raise AssertionError(
                f"{text!r} is not on {self.page.url}, which says: {shown}"
            ) from error

    def is_told(self, text: str) -> None:
        """Wait for a message; it has to be in view, and have the focus."""
        note = self.page.locator(".note", has_text=text).first
        note.wait_for()
        self.page.wait_for_function("() => document.activeElement.matches('.note')")
        said = " ".join(self.page.evaluate("document.activeElement.textContent").split())
        assert text.lower() in said.lower(), said
        assert note.evaluate(_IN_VIEW), text
