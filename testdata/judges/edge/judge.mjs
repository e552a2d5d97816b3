// Holds a node that serves testdata/packs, whose URL is the argument, against programs of others: the reader of the npm package pmtiles over the raw files, and
// MapLibre in a headless Chromium over the tiles and the styles. It prints what it saw, and ends with 1 where something does not hold.
import { createHash } from "node:crypto";
import { writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import { PMTiles } from "pmtiles";
import { PNG } from "pngjs";
import { browse } from "./browser.mjs";

const [node, pictures] = process.argv.slice(2);
let bad = 0;
const holds = (yes, what) => {
  if (!yes) bad++;
  console.log((yes ? "holds  " : "FAILS  ") + what);
};
const sum = (bytes) => createHash("sha256").update(Buffer.from(bytes)).digest("hex");

async function readPack(pack) {
  const file = new PMTiles(`${node}/edge/assets/${pack.id}.pmtiles`);
  const header = await file.getHeader();
  const told = await (await fetch(`${node}/edge/tiles/${pack.id}.json`)).json();
  holds(header.minZoom === told.minzoom && header.maxZoom === told.maxzoom && header.numAddressedTiles === pack.tiles, `${pack.id}: header and TileJSON agree`);
  let seen = 0, same = 0;
  for (let z = told.minzoom; z <= Math.min(told.maxzoom, 15); z++) {
    const at = (lon, lat) => [
      Math.floor(((lon + 180) / 360) * 2 ** z),
      Math.floor(((1 - Math.asinh(Math.tan((lat * Math.PI) / 180)) / Math.PI) / 2) * 2 ** z),
    ].map((n) => Math.min(Math.max(n, 0), 2 ** z - 1));
    const [west, south, east, north] = told.bounds ?? [-180, -85, 180, 85];
    const [x0, y0] = at(west, Math.min(north, 85)), [x1, y1] = at(east, Math.max(south, -85));
    for (let x = x0; x <= x1; x++) {
      for (let y = y0; y <= y1; y++) {
        const theirs = await file.getZxy(z, x, y);
        const ours = await fetch(told.tiles[0].replace("{z}", z).replace("{x}", x).replace("{y}", y));
        if (!theirs) { holds(ours.status === 204, `${pack.id} ${z}/${x}/${y} is left out`); continue; }
        seen++;
        if (ours.status === 200 && sum(theirs.data) === sum(await ours.arrayBuffer())) same++;
      }
    }
  }
  holds(seen === pack.tiles && same === seen, `${pack.id}: npm pmtiles over the raw file reads ${seen} tiles of ${pack.tiles}, ${same} equal to ours`);
}

// colours counts the colours of the map beside the panel.
function colours(png) {
  const { width, height, data } = PNG.sync.read(png), seen = new Map();
  for (let y = 0; y < height - 100; y += 2) {
    for (let x = 360; x < width - 60; x += 2) {
      const i = (y * width + x) * 4, key = `${data[i]},${data[i + 1]},${data[i + 2]}`;
      seen.set(key, (seen.get(key) ?? 0) + 1);
    }
  }
  return seen.size;
}

const { packs: all } = await (await fetch(node + "/edge/catalog")).json();
const odd = ["bounds-zero", "tile-decodes-to-12mib", "tile-type-6", "tilemaker-header"], packs = all.filter((p) => !odd.includes(p.id));
holds(packs.length === 3 && all.length === 7, `${all.length} packs`);
for (const pack of all.filter((p) => p.kind === "pmtiles")) await readPack(pack);
const pages = await browse(packs.map((p) => `${node}/edge/preview/${p.id}`), `document.body?.dataset.drawn === "yes"`, `document.getElementById("fault").textContent`);
pages.forEach((page, i) => {
  const id = packs[i].id, foreign = page.requests.filter((r) => !r.startsWith(node + "/") && !/^(data|blob):/.test(r));
  const complaints = page.complaints.filter((c) => !c.includes("does not use vector tile spec v2")); // it is an old pack
  if (pictures) writeFileSync(join(pictures, id + ".png"), page.picture);
  holds(page.ready && page.value === "", `${id}: MapLibre has drawn it ${page.value}`);
  holds(colours(page.picture) > 3, `${id}: the picture has ${colours(page.picture)} colours`);
  holds(foreign.length === 0 && page.requests.length > 7, `${id}: ${page.requests.length} requests, none to another host ${foreign}`);
  holds(complaints.length === 0, `${id}: no complaint, of the policy or otherwise ${complaints}`);
});

// The six lines of the manual, on another host. The vector pack, an MBTiles file, has no names, so its labels are given a text.
const six = (id) => `<link rel="icon" href="data:,"><link rel="stylesheet" href="${node}/edge/static/maplibre-gl-6.17.0/maplibre-gl.css">
<div id="map" style="height: 100vh"></div>
<script type="module">
  import { Map } from "${node}/edge/static/maplibre-gl-6.17.0/maplibre-gl.mjs";
  window.map = new Map({ container: "map", style: "${node}/edge/styles/${id}.json" });
  map.once("load", () => map.getStyle().layers.forEach((l) => l.type === "symbol" && map.setLayoutProperty(l.id, "text-field", "a name")));
  map.once("load", () => map.once("idle", () => { document.body.dataset.drawn = "yes"; }));
</script>`;
const host = createServer((asked, answer) => answer.setHeader("Content-Type", "text/html").end(six(asked.url.slice(1))));
await new Promise((done) => host.listen(0, "127.0.0.1", done));
const elsewhere = `http://127.0.0.1:${host.address().port}/`;
const drawn = await browse(packs.map((p) => elsewhere + p.id), `document.body?.dataset.drawn === "yes"`, `map.queryRenderedFeatures().filter((f) => f.layer.type === "symbol").length`);
drawn.forEach((page, i) => {
  const id = packs[i].id, foreign = page.requests.filter((r) => !r.startsWith(node + "/") && r !== page.url && !/^(data|blob):/.test(r));
  const complaints = page.complaints.filter((c) => !c.includes("does not use vector tile spec v2"));
  if (pictures) writeFileSync(join(pictures, id + "-style.png"), page.picture);
  holds(page.ready && colours(page.picture) > 3, `${id}: six lines on another host have drawn it`);
  if (packs[i].kind === "mbtiles") holds(page.value > 0, `${id}: with ${page.value} labels`);
  holds(foreign.length === 0 && page.requests.some((r) => r.includes(`/edge/tiles/${id}/`)), `${id}: they asked only the node ${foreign}`);
  holds(complaints.length === 0, `${id}: no complaint ${complaints}`);
});
host.close();
console.log(bad ? `${bad} do not hold` : "all holds");
process.exit(bad ? 1 : 0);
