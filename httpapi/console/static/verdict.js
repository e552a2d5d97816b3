// The verdict of a page on the proof that it shows, and the helpers of the checks.

class Fault extends Error {}

// need throws a Fault unless a condition holds.
export function need(what, holds) {
  if (!holds) throw new Fault(what);
}

export const fromBase64 = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));

// joined returns the bytes of all parts.
export function joined(...parts) {
  const out = new Uint8Array(parts.reduce((n, p) => n + p.length, 0));
  let at = 0;
  for (const p of parts) {
    out.set(p, at);
    at += p.length;
  }
  return out;
}

// show calls check with the data of the verdict, and writes into the page what check returns or throws.
export async function show(check) {
  const place = globalThis.document?.getElementById("verdict");
  if (!place?.dataset.proof) return;
  const light = document.createElement("span");
  try {
    light.textContent = "verified in this browser: " + await check(place.dataset);
    light.className = "light good";
  } catch (fault) {
    light.textContent = "this proof does not hold: " + fault.message;
    light.className = "light bad";
  }
  place.replaceChildren(light);
}
