// The little that HTML and htmx leave over. No page needs it to work, but for files that are dropped.
"use strict";

// Copy what a button points at: data-copy="#id".
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const text = document.querySelector(button.dataset.copy).textContent;
  navigator.clipboard.writeText(text).then(() => {
    const before = button.textContent;
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = before; }, 1500);
  });
});

document.addEventListener("click", (event) => {
  if (event.target.closest("[data-print]")) window.print();
});

// A form that takes long says so at once, and is sent once: <button data-busy="Reading the file">.
document.addEventListener("submit", (event) => {
  const button = event.submitter;
  if (!button || !button.dataset.busy || event.defaultPrevented) return;
  if (event.target.dataset.sent) { event.preventDefault(); return; }
  event.target.dataset.sent = "yes";
  button.setAttribute("aria-busy", "true");
  button.textContent = button.dataset.busy;
});
window.addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });

// Rows of a long list that do not have what is typed: <input data-filter="#list li">. A .group
// without any row left is hidden with its heading.
document.addEventListener("input", (event) => {
  const field = event.target;
  if (!field.dataset || !field.dataset.filter) return;
  const wanted = field.value.toLowerCase();
  for (const row of document.querySelectorAll(field.dataset.filter)) {
    row.hidden = !row.textContent.toLowerCase().includes(wanted);
  }
  for (const group of document.querySelectorAll(".group")) {
    group.hidden = !group.querySelector(`${field.dataset.filter}:not([hidden])`);
  }
});

// What a page has to say is in view, and has the focus: <div data-focus tabindex="-1">.
function sayIt() {
  const said = document.querySelector("[data-focus]");
  if (!said) return false;
  for (let one = said.closest("details"); one; one = one.parentElement.closest("details")) one.open = true;
  said.focus({ preventScroll: true });
  said.scrollIntoView({ block: "center" });
  return true;
}

document.addEventListener("DOMContentLoaded", () => {
  // On a narrow screen the steps are a line that scrolls: begin with the one that is shown.
  const here = document.querySelector(".steps [aria-current]");
  if (here) here.scrollIntoView({ block: "nearest", inline: "center" });
  sayIt();
  for (const select of document.querySelectorAll("[data-levels-of]")) showLevels(select);
  watchLock();
});

// Levels of the variable that another field names: <select data-levels-of="field">.
function showLevels(select) {
  const of = document.getElementById(select.dataset.levelsOf);
  if (!of) return;
  const groups = [...select.querySelectorAll("optgroup")];
  for (const group of groups) {
    group.hidden = group.disabled = group.label !== of.value;
    if (group.disabled) for (const option of group.children) option.selected = false;
  }
}
document.addEventListener("change", (event) => {
  for (const select of document.querySelectorAll("[data-levels-of]")) {
    if (select.dataset.levelsOf === event.target.id) showLevels(select);
  }
});

// A part of a page that is drawn anew keeps what was unfolded, and the focus.
let kept = null;
document.addEventListener("htmx:beforeSwap", () => {
  const field = document.activeElement;
  kept = {
    open: [...document.querySelectorAll("details[open][id]")].map((one) => one.id),
    focus: field && field.id,
    at: field && field.type === "text" ? field.selectionStart : null,
  };
});
document.addEventListener("htmx:afterSettle", () => {
  if (!kept) return;
  for (const id of kept.open) {
    const one = document.getElementById(id);
    if (one) one.open = true;
  }
  const field = kept.focus && document.getElementById(kept.focus);
  if (field && document.activeElement !== field) {
    field.focus({ preventScroll: true });
    if (kept.at !== null && field.type === "text") field.setSelectionRange(kept.at, kept.at);
  }
  kept = null;
});

// A program that has ended does nothing any more, so that nothing may move.
let failures = 0;
function noAnswer(event) {
  const part = event.target.closest ? event.target.closest("#progress") : null;
  failures += 1;
  if (!part || failures < 3) return;
  part.outerHTML =
    '<div class="note error" role="alert" tabindex="-1" id="ended"><strong>The program has ended.</strong> ' +
    "What was done is kept. Start it again, and open the new address that it gives.</div>";
  document.getElementById("ended").focus();
}
document.addEventListener("htmx:sendError", noAnswer);
document.addEventListener("htmx:responseError", noAnswer);
document.addEventListener("htmx:afterOnLoad", () => { failures = 0; });

// What was opened leaves the screen when the key is locked: <div data-locks="/address">. To look how
// long the key stays unlocked is not to use it.
function watchLock() {
  const part = document.querySelector("[data-locks]");
  if (!part) return;
  const look = () => fetch(part.dataset.locks)
    .then((answer) => answer.json())
    .then(({ seconds }) => {
      if (seconds <= 0) location.reload();
      else setTimeout(look, 1000 * Math.min(seconds + 1, 60));
    })
    .catch(() => location.reload());
  look();
}

// A file that is dropped on <form data-drop> goes into its file field, and the form is sent.
for (const kind of ["dragover", "dragleave", "drop"]) {
  document.addEventListener(kind, (event) => {
    const form = document.querySelector("form[data-drop]");
    if (!form) return;
    event.preventDefault(); // or the browser would leave this page for the file
    form.classList.toggle("over", kind === "dragover");
    if (kind === "drop" && event.dataTransfer.files.length) {
      form.querySelector("input[type=file]").files = event.dataTransfer.files;
      form.requestSubmit();
    }
  });
}
document.addEventListener("change", (event) => {
  const form = event.target.closest("form[data-drop]");
  if (form && event.target.type === "file" && event.target.files.length) form.requestSubmit();
});
