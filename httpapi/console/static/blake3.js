// BLAKE3 with an output of 32 bytes: plain, and with a key derived from a context.

const IV = Uint32Array.of(
  0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
);
const ORDER = [2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8];
const CHUNK = 1024;
const BLOCK = 64;
const CHUNK_START = 1, CHUNK_END = 2, PARENT = 4, ROOT = 8, CONTEXT = 32, MATERIAL = 64;

function mix(v, a, b, c, d, x, y) {
  v[a] = v[a] + v[b] + x;
  v[d] = rotate(v[d] ^ v[a], 16);
  v[c] = v[c] + v[d];
  v[b] = rotate(v[b] ^ v[c], 12);
  v[a] = v[a] + v[b] + y;
  v[d] = rotate(v[d] ^ v[a], 8);
  v[c] = v[c] + v[d];
  v[b] = rotate(v[b] ^ v[c], 7);
}

function rotate(x, n) {
  return (x >>> n) | (x << (32 - n));
}

// compress returns the first eight words that a block makes of a chaining value.
function compress(cv, words, counter, length, flags) {
  const v = new Uint32Array(16);
  v.set(cv);
  v.set(IV.subarray(0, 4), 8);
  v.set([counter % 2 ** 32, counter / 2 ** 32, length, flags], 12);
  let m = words;
  for (let round = 0; round < 7; round++) {
    mix(v, 0, 4, 8, 12, m[0], m[1]);
    mix(v, 1, 5, 9, 13, m[2], m[3]);
    mix(v, 2, 6, 10, 14, m[4], m[5]);
    mix(v, 3, 7, 11, 15, m[6], m[7]);
    mix(v, 0, 5, 10, 15, m[8], m[9]);
    mix(v, 1, 6, 11, 12, m[10], m[11]);
    mix(v, 2, 7, 8, 13, m[12], m[13]);
    mix(v, 3, 4, 9, 14, m[14], m[15]);
    m = Uint32Array.from(ORDER, (i) => m[i]);
  }
  return Uint32Array.from({ length: 8 }, (_, i) => v[i] ^ v[i + 8]);
}

function wordsOf(bytes) {
  const block = new Uint8Array(BLOCK);
  block.set(bytes);
  const view = new DataView(block.buffer);
  return Uint32Array.from({ length: 16 }, (_, i) => view.getUint32(4 * i, true));
}

// chunk returns the chaining value of up to 1024 bytes.
function chunk(bytes, key, index, flags, root) {
  let cv = key;
  const blocks = Math.max(1, Math.ceil(bytes.length / BLOCK));
  for (let i = 0; i < blocks; i++) {
    const part = bytes.subarray(i * BLOCK, (i + 1) * BLOCK);
    const first = i === 0 ? CHUNK_START : 0;
    const last = i === blocks - 1 ? CHUNK_END | root : 0;
    cv = compress(cv, wordsOf(part), index, part.length, flags | first | last);
  }
  return cv;
}

// tree returns the chaining value of bytes that begin with the chunk index.
function tree(bytes, key, index, flags, root) {
  if (bytes.length <= CHUNK) return chunk(bytes, key, index, flags, root);
  let left = CHUNK;
  while (left * 2 < bytes.length) left *= 2;
  const block = new Uint32Array(16);
  block.set(tree(bytes.subarray(0, left), key, index, flags, 0));
  block.set(tree(bytes.subarray(left), key, index + left / CHUNK, flags, 0), 8);
  return compress(key, block, 0, BLOCK, flags | PARENT | root);
}

function bytesOf(words) {
  const view = new DataView(new ArrayBuffer(32));
  words.forEach((w, i) => view.setUint32(4 * i, w, true));
  return new Uint8Array(view.buffer);
}

// sum returns the digest of bytes.
export function sum(bytes) {
  return bytesOf(tree(bytes, IV, 0, 0, ROOT));
}

// derived returns the digest of bytes under the key that belongs to a context.
export function derived(context, bytes) {
  const key = tree(new TextEncoder().encode(context), IV, 0, CONTEXT, ROOT);
  return bytesOf(tree(bytes, key, 0, MATERIAL, ROOT));
}
