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

// Rows of a long list that do not have what is typed: <input data-filter="#list li">.
document.addEventListener("input", (event) => {
  const field = event.target;
  if (!field.dataset || !field.dataset.filter) return;
  const wanted = field.value.toLowerCase();
  for (const row of document.querySelectorAll(field.dataset.filter)) {
    row.hidden = !row.textContent.toLowerCase().includes(wanted);
  }
});

// On a narrow screen the steps are a line that scrolls: begin with the one that is shown.
document.addEventListener("DOMContentLoaded", () => {
  const here = document.querySelector(".steps [aria-current]");
  if (here) here.scrollIntoView({ block: "nearest", inline: "center" });
});

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
