// Draws the pack whose TileJSON the page names: pictures as they are, layers of vector tiles each in a colour of its own. What the pack says of
// itself is shown as text, never as HTML.
import * as maplibregl from "./maplibre-gl-6.17.0/maplibre-gl.mjs";

const colours = ["#3b76c4", "#c4503b", "#3f9a52", "#8a5bb5", "#c28a1e", "#2a9d9d"];
const el = (id) => document.getElementById(id);

function fail(text) {
  el("fault").textContent = text;
  el("fault").hidden = false;
}

function vectorLayers(layers) {
  return layers.flatMap((layer, i) => {
    const colour = colours[i % colours.length];
    const base = { source: "pack", "source-layer": layer.id };
    const only = (...kinds) => ["in", ["geometry-type"], ["literal", kinds]];
    return [
      { ...base, id: layer.id + " areas", type: "fill", filter: only("Polygon", "MultiPolygon"), paint: { "fill-color": colour, "fill-opacity": 0.35, "fill-outline-color": colour } },
      { ...base, id: layer.id + " lines", type: "line", filter: only("LineString", "MultiLineString"), paint: { "line-color": colour, "line-width": 1.6 } },
      { ...base, id: layer.id + " points", type: "circle", filter: only("Point", "MultiPoint"), paint: { "circle-color": colour, "circle-radius": 3.5, "circle-stroke-width": 1, "circle-stroke-color": "#fff" } },
    ];
  });
}

// The tiles are asked for where the page itself came from: only the end of their URL is the pack's.
function here(template) {
  const folder = "/tiles/";
  return new URL("../tiles/", document.baseURI).href + template.slice(template.lastIndexOf(folder) + folder.length);
}

function style(tiles) {
  const source = { tiles: tiles.tiles.map(here), minzoom: tiles.minzoom, maxzoom: tiles.maxzoom };
  if (tiles.bounds) source.bounds = tiles.bounds;
  const ground = { id: "ground", type: "background", paint: { "background-color": "#f4f2ec" } };
  if (tiles.format === "mvt" || tiles.format === "mlt") {
    return { version: 8, sources: { pack: { ...source, type: "vector", encoding: tiles.format } }, layers: [ground, ...vectorLayers(tiles.vector_layers ?? [])] };
  }
  return { version: 8, sources: { pack: { ...source, type: "raster", tileSize: tiles.tileSize ?? 256 } }, layers: [ground, { id: "pictures", type: "raster", source: "pack" }] };
}

function legend(layers) {
  layers.forEach((layer, i) => {
    const line = document.createElement("li");
    const mark = document.createElement("span");
    mark.className = "c" + (i % colours.length);
    line.append(mark, layer.id);
    el("layers").append(line);
  });
}

async function draw() {
  const answer = await fetch(document.body.dataset.tilejson);
  const tiles = await answer.json();
  if (!answer.ok) throw new Error(tiles.detail);
  el("attribution").textContent = new DOMParser().parseFromString(tiles.attribution ?? "", "text/html").body.textContent;
  legend(tiles.vector_layers ?? []);
  const [west, south, east, north] = tiles.bounds ?? [-180, -85, 180, 85];
  const [longitude, latitude, zoom] = tiles.center ?? [0, 0, 0];
  const view = zoom > 0
    ? { center: [longitude, latitude], zoom }
    : { bounds: [[west, Math.max(south, -85)], [east, Math.min(north, 85)]], fitBoundsOptions: { padding: 20, maxZoom: tiles.maxzoom } };
  const map = new maplibregl.Map({ container: "map", style: style(tiles), attributionControl: false, hash: true, ...view });
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
