// Package mbtiles reads MBTiles 1.3 files, which are SQLite databases of map tiles. It opens them
// so that the content of a file cannot change the file, another file or the process.
//
// # Invariants
//
//  1. A file is opened read-only and immutable. It is refused if it has a write-ahead log or a hot
//     journal, which may hold tiles, or if no index finds a tile.
//  2. Statements may only select, read and check (allowed). Views of a hostile file cannot write,
//     attach, set, recurse or call functions.
//  3. A file is refused if its schema could make a statement run or grow without bound: more than
//     1000 objects, generated columns, metadata that is not one scan of one table, or tiles in
//     which indexes alone do not find a tile (schema.go). No statement calls a virtual table.
//  4. A statement ends with the context of its caller. The statements of Open and Tile also end
//     after the timeout that Open received. No value is longer than Limits permit.
//  5. A row that no request can name, that is too long or that has another type is skipped.
//
// # Tasks and queues
//
// None. The pool has four connections; further callers wait for one until their context ends.
//
// # Lock order
//
// None.
package mbtiles
