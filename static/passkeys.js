/* Passkeys: asks the server for a challenge and the browser for its answer. Pages with a form[data-passkey] load it. */
(() => {
  "use strict";

  const BAD_ANSWER = "The server could not be reached, or its answer can't be used. Try again.";

  function bytesOf(text) {
    return Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (letter) => letter.charCodeAt(0));
  }

  function textOf(buffer) {
    const letters = Array.from(new Uint8Array(buffer), (byte) => String.fromCharCode(byte)).join("");
    return btoa(letters).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
  }

  const withBytes = (credentials) => (credentials || []).map((each) => ({ ...each, id: bytesOf(each.id) }));

  async function make(options) {
    const made = await navigator.credentials.create({ publicKey: {
      ...options,
      challenge: bytesOf(options.challenge),
      user: { ...options.user, id: bytesOf(options.user.id) },
      excludeCredentials: withBytes(options.excludeCredentials),
    } });
    return asText(made, ["clientDataJSON", "attestationObject"]);
  }

  async function use(options) {
    const answer = await navigator.credentials.get({ publicKey: {
      ...options,
      challenge: bytesOf(options.challenge),
      allowCredentials: withBytes(options.allowCredentials),
    } });
    return asText(answer, ["clientDataJSON", "authenticatorData", "signature", "userHandle"]);
  }

  function asText(credential, names) {
    const parts = names.filter((name) => credential.response[name]).map((name) => [name, textOf(credential.response[name])]);
    return JSON.stringify({
      id: credential.id, rawId: textOf(credential.rawId), type: credential.type, response: Object.fromEntries(parts),
    });
  }

  /* JSON, or an error with the server's own sentence. */
  async function send(address, form) {
    let response, answer;
    try {
      response = await fetch(address, { method: "POST", body: form, headers: { Accept: "application/json" } });
      answer = await response.json();
    } catch {
      throw new Error(BAD_ANSWER);
    }
    if (!response.ok) throw new Error(answer.detail || BAD_ANSWER);
    return answer;
  }

  /* What the browser says in a name, in a sentence. It does not tell a "no" from a time that is over. */
  function sentenceOf(error, waited, timeout) {
    if (!(error instanceof DOMException)) return error.message;
    if (error.name === "InvalidStateError") return "This device holds a passkey of yours already.";
    if (error.name === "SecurityError") return "The browser uses no passkeys at this address.";
    if (error.name === "NotAllowedError" && waited >= timeout) return "It took too long. Try again.";
    if (error.name === "NotAllowedError" || error.name === "AbortError") return "Cancelled, or no passkey fits. Nothing was sent.";
    return "The browser could not use a passkey. Try again, or use another device.";
  }

  function show(form, button, { waits = false, problem = "" }) {
    button.disabled = waits;
    button.setAttribute("aria-busy", String(waits));
    button.querySelector("[data-words]").textContent = waits ? "Waiting for your passkey…" : button.dataset.says;
    const place = form.querySelector("[data-passkey-error]");
    place.hidden = !problem;
    place.querySelector("[data-words]").textContent = problem;
  }

  async function run(form, button) {
    let began = performance.now(), timeout = Infinity;
    show(form, button, { waits: true });
    try {
      const asked = await send(form.dataset.challenge, new FormData(form));
      if (asked.to) return location.assign(asked.to);
      began = performance.now();
      timeout = asked.timeout || Infinity;
      form.elements.credential.value = await (form.dataset.passkey === "make" ? make(asked) : use(asked));
      if (form.dataset.passkey === "make") {
        form.elements.passkey_password.value = "";
        return form.submit();
      }
      const remember = document.querySelector("[name=remember]");
      form.elements.remember.value = remember?.checked ? "1" : "";
      location.assign((await send(form.action, new FormData(form))).to);
    } catch (error) {
      show(form, button, { problem: sentenceOf(error, performance.now() - began, timeout) });
    }
  }

  function start(form) {
    const button = form.querySelector("[data-passkey-button]");
    if (!window.PublicKeyCredential) {
      form.querySelector("[data-passkey-unsupported]").hidden = false;
      return;
    }
    button.dataset.says = button.querySelector("[data-words]").textContent;
    button.hidden = button.disabled = false;
    form.addEventListener("submit", (event) => {
      if (event.submitter !== button) return; // a passkey that is removed
      event.preventDefault();
      run(form, button);
    });
    window.addEventListener("pageshow", () => show(form, button, {})); // from the back button
  }

  document.querySelectorAll("form[data-passkey]").forEach(start);
})();
