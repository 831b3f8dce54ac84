// Makes one tree of elements like another by changing only what differs, so that focus, scroll position, selection
// and opened details stay. Children are matched by id or data-key, the rest by their order; [data-keep] is left alone.
"use strict";
(() => {
  const keyOf = (node) => (node.nodeType === Node.ELEMENT_NODE ? node.id || node.dataset?.key || null : null);
  // What the reader changes: whether details are open, and what is typed or chosen.
  const READERS = { DETAILS: ["open"], INPUT: ["value", "checked"], OPTION: ["selected"] };

  function morphAttributes(old, wanted) {
    const left = READERS[old.tagName] ?? [];
    for (const { name, value } of [...wanted.attributes]) {
      if (!left.includes(name) && old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
    for (const { name } of [...old.attributes]) {
      if (!left.includes(name) && !wanted.hasAttribute(name)) old.removeAttribute(name);
    }
  }

  function isLike(old, wanted) {
    return old.nodeType === wanted.nodeType && old.nodeName === wanted.nodeName && keyOf(old) === keyOf(wanted);
  }

  function morphNode(old, wanted) {
    if (old.nodeType !== Node.ELEMENT_NODE) {
      if (old.nodeValue !== wanted.nodeValue) old.nodeValue = wanted.nodeValue;
      return;
    }
    if (old.hasAttribute("data-keep") || old.isEqualNode(wanted)) return;
    morphAttributes(old, wanted);
    morphChildren(old, wanted);
  }

  function morphChildren(old, wanted) {
    const keyed = new Map();
    for (const child of old.children) {
      const key = keyOf(child);
      if (key !== null) keyed.set(key, child);
    }
    let at = old.firstChild;
    for (const want of [...wanted.childNodes]) {
      const key = keyOf(want);
      let match = key === null ? at : keyed.get(key);
      if (match && !isLike(match, want)) match = null;
      if (!match) {
        old.insertBefore(document.importNode(want, true), at);
        continue;
      }
      if (match === at) at = at.nextSibling;
      else old.insertBefore(match, at);
      keyed.delete(key);
      morphNode(match, want);
    }
    while (at) {
      const next = at.nextSibling;
      at.remove();
      at = next;
    }
  }

  window.koalaMorph = morphNode;
})();
