// The code of a sign-in link stands behind its "#", which a browser keeps to itself. It is taken out of the address and
// sent as a form, in a field for codes alone: a link with a token signs nobody in.
"use strict";
(() => {
  const signIn = () => {
    const code = new URLSearchParams(location.hash.slice(1)).get("code");
    if (!code) return;
    history.replaceState(null, "", location.pathname);
    const form = document.querySelector("form.login");
    form.elements.secret.disabled = true;
    const field = document.createElement("input");
    field.type = "hidden";
    field.name = "code";
    field.value = code;
    form.append(field);
    form.submit();
  };
  window.addEventListener("hashchange", signIn);
  signIn();
})();
