// Package mbtiles reads MBTiles 1.3 files: SQLite databases of map tiles, opened so that nothing a file says can change it, another file or the
// process.
//
// # Invariants
//
//  1. A file is opened read only and as one that nobody changes. One that has a write-ahead log or a hot journal is refused, since its tiles
//     may be in there, and one in which no index finds a tile.
//  2. Statements may select, read and check, nothing else (allowed): views of a hostile file can neither write, attach, set,
//     recurse nor call functions.
//  3. A file is refused whose schema could make a statement run or grow without bound: more than 1000 objects, virtual
//     tables, generated columns, metadata that is not a table, tiles in which indexes alone do not find a tile (schema.go).
//  4. A statement ends with the context of its caller, that of Open and Tile within a time that Open is given, and no value
//     is longer than a tile may be.
//
// # Tasks and queues
//
// none. The pool has four connections; further callers wait for one until their context ends.
//
// # Lock order
//
// none
package mbtiles
