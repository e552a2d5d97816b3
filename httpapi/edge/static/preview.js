// Draws the pack whose TileJSON and style the page names. What the pack says of itself is shown as text, never as HTML.
import * as maplibregl from "./maplibre-gl-6.17.0/maplibre-gl.mjs";

const el = (id) => document.getElementById(id);

function fail(text) {
  el("fault").textContent = text;
  el("fault").hidden = false;
}

async function read(path) {
  const answer = await fetch(path);
  const body = await answer.json();
  if (!answer.ok) throw new Error(body.detail);
  return body;
}

// The tiles are asked for where the page itself came from: only the end of their URL is the pack's.
function here(template) {
  const folder = "/tiles/";
  return new URL("../tiles/", document.baseURI).href + template.slice(template.lastIndexOf(folder) + folder.length);
}

// The page asks only the node, so labels are drawn with the fonts of the reader.
function atHome(style, tiles) {
  delete style.glyphs;
  const source = style.sources.pack;
  delete source.url;
  Object.assign(source, { tiles: tiles.tiles.map(here), minzoom: tiles.minzoom, maxzoom: tiles.maxzoom });
  if (tiles.bounds) source.bounds = tiles.bounds;
  return style;
}

function legend(layers) {
  for (const layer of layers.filter((l) => l.type === "fill")) {
    const line = document.createElement("li");
    const mark = document.createElement("span");
    mark.style.background = layer.paint["fill-color"];
    line.append(mark, layer["source-layer"]);
    el("layers").append(line);
  }
}

async function draw() {
  const { tilejson, style: styled } = document.body.dataset;
  const [tiles, style] = await Promise.all([read(tilejson), read(styled)]);
  el("attribution").textContent = new DOMParser().parseFromString(tiles.attribution ?? "", "text/html").body.textContent;
  legend(style.layers);
  const [west, south, east, north] = tiles.bounds ?? [-180, -85, 180, 85];
  const view = tiles.center?.[2] > 0
    ? {}
    : { bounds: [[west, Math.max(south, -85)], [east, Math.min(north, 85)]], fitBoundsOptions: { padding: 20, maxZoom: tiles.maxzoom } };
  const map = new maplibregl.Map({ container: "map", style: atHome(style, tiles), attributionControl: false, hash: true, ...view });
  map.addControl(new maplibregl.NavigationControl());
  map.on("error", (e) => fail(e.error?.message ?? "a tile could not be drawn"));
  map.on("move", () => show(map));
  map.on("idle", () => { document.body.dataset.drawn = "yes"; });
  show(map);
}

function show(map) {
  const at = map.getCenter();
  el("zoom").textContent = map.getZoom().toFixed(2);
  el("at").textContent = at.lat.toFixed(4) + ", " + at.lng.toFixed(4);
}

draw().catch((e) => fail(e.message));
