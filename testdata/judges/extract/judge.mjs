// Compares extracts of ronbox with those of go-pmtiles, in the folders ours and theirs of the argument, with the reader of the npm package pmtiles. A line of the file
// extracts has the name of an extract, its source, its flags, the requests and bytes of ronbox and of go-pmtiles, and the verdict of `pmtiles verify` on ours. It prints
// what it saw, and ends with 1 if something does not hold.
import { closeSync, openSync, readFileSync, readSync } from "node:fs";
import { join } from "node:path";
import { PMTiles } from "pmtiles";

const dir = process.argv[2];
let bad = 0;
const holds = (yes, what) => {
  if (!yes) bad++;
  console.log((yes ? "holds  " : "FAILS  ") + what);
};

// File is a source of the reader: a file of this machine.
class File {
  constructor(path) { this.path = path; }
  getKey() { return this.path; }
  async getBytes(offset, length) {
    const fd = openSync(this.path), b = Buffer.alloc(length);
    const n = readSync(fd, b, 0, length, offset);
    closeSync(fd);
    return { data: b.buffer.slice(b.byteOffset, b.byteOffset + n) };
  }
}

for (const line of readFileSync(join(dir, "extracts"), "utf8").trim().split("\n")) {
  const [name, file, flags, ours, theirs, verified] = line.split("\t");
  const what = `${file} ${flags.replace(dir + "/", "")}`;
  holds(verified === "yes", `${what}: pmtiles verify accepts it ${verified === "yes" ? "" : verified}`);
  const [mine, other, source] = [join("ours", name + ".pmtiles"), join("theirs", name + ".pmtiles"), join("www", file)].map((path) => new PMTiles(new File(join(dir, path))));
  const header = await other.getHeader(), own = await mine.getHeader(), whole = await source.getHeader();
  let seen = 0, same = 0, more = 0;
  for (let z = whole.minZoom; z <= whole.maxZoom; z++) {
    const [x0, x1, y0, y1] = span(whole, z);
    for (let x = x0; x <= x1; x++) {
      for (let y = y0; y <= y1; y++) {
        const [a, b] = [await mine.getZxy(z, x, y), await other.getZxy(z, x, y)];
        if (b) {
          seen++;
          if (a && Buffer.from(a.data).equals(Buffer.from(b.data))) same++;
        } else if (a) {
          more++;
        }
      }
    }
  }
  holds(seen > 0 && seen === header.numAddressedTiles && same === seen, `${what}: ${seen} tiles of go-pmtiles, ${same} equal to ours; ${more} more of ours`);
  holds(own.numAddressedTiles === seen + more, `${what}: the header counts ${own.numAddressedTiles} tiles`);
  const [requests, bytes] = ours.split(" ").map(Number), [theirRequests, theirBytes] = theirs.split(" ").map(Number);
  holds(bytes <= 1.25 * theirBytes + (64 << 10), `${what}: ${requests} requests and ${bytes} bytes, go-pmtiles ${theirRequests} and ${theirBytes}`);
}
console.log(bad ? `${bad} do not hold` : "all holds");
process.exit(bad ? 1 : 0);

// span returns the columns and rows of a zoom level within the bounds of an archive.
function span(header, z) {
  const most = 2 ** z - 1, clip = (n) => Math.min(Math.max(Math.floor(n), 0), most);
  const column = (lon) => clip(((lon + 180) / 360) * 2 ** z);
  const row = (lat) => clip(((1 - Math.asinh(Math.tan((lat * Math.PI) / 180)) / Math.PI) / 2) * 2 ** z);
  return [column(header.minLon), column(header.maxLon), row(header.maxLat), row(header.minLat)];
}
