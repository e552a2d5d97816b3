package packtest

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// Metadata is the script of a sound metadata table. Sound is the script of a sound file with a tile
// at 0/0/0 and one at 1/0/0 in the north.
const (
	Metadata = `CREATE TABLE metadata (name text, value text);
		INSERT INTO metadata VALUES ('name', 'made'), ('minzoom', '0'), ('maxzoom', '1'), ('format', 'png');`
	Sound = Metadata + `CREATE TABLE tiles (zoom_level integer, tile_column integer, tile_row integer, tile_data blob);
		CREATE UNIQUE INDEX tile_index ON tiles (zoom_level, tile_column, tile_row);
		INSERT INTO tiles VALUES (0, 0, 0, CAST('world' AS BLOB)), (1, 0, 1, CAST('north' AS BLOB));`
)

// WriteMBTiles creates an MBTiles file from a script.
func WriteMBTiles(t testing.TB, path, script string) {
	t.Helper()
	c, err := sqlite.OpenConn(path, sqlite.OpenReadWrite|sqlite.OpenCreate)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(sqlitex.ExecuteScript(c, script, nil), c.Close()); err != nil {
		t.Fatal(err)
	}
}

// HostileMBTiles is a file that must be refused within bounded time and memory.
type HostileMBTiles struct {
	Name   string // valid as an id
	Script string
	Fault  string // a part of the expected fault
	Slow   bool   // it opens, and only a verification with a budget refuses it
}

// numbers returns the script of a table with n rows, all with k = 1, so that joins over k multiply.
func numbers(n int) string {
	return `CREATE TABLE many (i integer primary key, k integer); CREATE INDEX many_k ON many (k);
		INSERT INTO many SELECT i, 1 FROM (
			WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT ` + strconv.Itoa(n) + `)
			SELECT i FROM n);`
}

// tilesView returns the script of a view tiles over the tiles of Sound. data is its tile_data, and
// more is the end of its query.
func tilesView(data, more string) string {
	return `ALTER TABLE tiles RENAME TO t; CREATE VIEW tiles AS SELECT
		t.zoom_level AS zoom_level, t.tile_column AS tile_column, t.tile_row AS tile_row, ` +
		data + ` AS tile_data FROM t ` + more + `;`
}

// Hostile returns hostile MBTiles files.
func Hostile() []HostileMBTiles {
	endless := "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT "
	crossed := "FROM many a, many b, many c, many d, many e WHERE a.i + b.i + c.i + d.i + e.i < 0"
	tables := func(n int) string {
		var s strings.Builder
		for i := range n {
			s.WriteString("CREATE TABLE x" + strconv.Itoa(i) + " (a);")
		}
		return s.String()
	}
	noMetadata := Sound + "DROP TABLE metadata;"
	return []HostileMBTiles{
		{
			Name:   "metadata-endless",
			Script: noMetadata + "CREATE VIEW metadata AS " + endless + "'name' AS name, i AS value FROM n WHERE i < 0",
			Fault:  "the view metadata has a WITH clause",
		},
		{
			Name: "metadata-cross",
			Script: noMetadata + numbers(
				100) + "CREATE VIEW metadata AS SELECT 'name' AS name, a.i AS value " + crossed,
			Fault: "to read the metadata",
		},
		{
			Name:   "metadata-fts",
			Script: noMetadata + "CREATE VIRTUAL TABLE metadata USING fts5(name, value)",
			Fault:  "virtual table",
		},
		{Name: "metadata-rtree", Script: noMetadata + `CREATE VIRTUAL TABLE r USING rtree(id, a, b);
			CREATE VIEW metadata AS SELECT id AS name, a AS value FROM r`, Fault: "VIRTUAL TABLE"},
		{Name: "metadata-generated", Script: noMetadata + `CREATE TABLE metadata (name text, n integer,
			value text AS (CASE WHEN zeroblob(n) LIKE '%a%b%' THEN 'x' END));
			INSERT INTO metadata VALUES ('name', 1000000)`, Fault: "is generated"},
		{Name: "tiles-endless", Script: Metadata + "CREATE VIEW tiles AS " + endless +
			"0 AS zoom_level, i AS tile_column, 0 AS tile_row, 'x' AS tile_data FROM n", Fault: "WITH clause"},
		{
			Name: "tiles-cross",
			Script: Sound + numbers(100) + tilesView("tile_data",
				", many a, many b, many c, many d, many e WHERE a.i + b.i + c.i + d.i + e.i < 0"),
			Fault: "to find a tile",
		},
		{Name: "tiles-ranges", Script: Sound + numbers(100) + tilesView("tile_data",
			", many a, many b, many c, many d WHERE a.i > 0 AND b.i > 0 AND c.i > 0 AND d.i > 0 "+
				"AND a.i + b.i + c.i + d.i < 0"), Fault: "to find a tile"},
		{
			Name:   "tiles-subquery",
			Script: Sound + numbers(100) + tilesView("(SELECT a.i "+crossed+")", ""),
			Fault:  "to find a tile",
		},
		{
			Name:   "tiles-sorted",
			Script: Sound + numbers(100) + tilesView("tile_data", ", many a WHERE a.k = 1 ORDER BY a.i * 7 % 3"),
			Fault:  "to find a tile",
		},
		{
			Name:   "tiles-function",
			Script: Sound + tilesView("CASE WHEN tile_data GLOB '*a*b*' THEN tile_data END", ""),
			Fault:  "not authorized to use function",
		},
		{
			Name: "tiles-nested",
			Script: Sound + `ALTER TABLE tiles RENAME TO t; CREATE VIEW v AS SELECT * FROM t;
				CREATE VIEW tiles AS SELECT * FROM v`,
			Fault: "names the view v",
		},
		{Name: "tiles-multiplied", Script: Sound + numbers(400) + tilesView("tile_data",
			", many a, many b, many c, many d WHERE a.k = 1 AND b.k = 1 AND c.k = 1 AND d.k = 1 "+
				"AND a.i + b.i + c.i + d.i < 0"), Slow: true},
		{Name: "tables", Script: Sound + tables(1200), Fault: "more than 1000 objects"},
		{Name: "statement", Script: Sound + "CREATE TABLE y (" + strings.Repeat("a", 20_000) + ")", Fault: "too big"},
	}
}

// BigDirectory returns a PMTiles archive with a directory of n entries for the same byte, in a leaf
// or in the root.
func BigDirectory(n int, leaf bool) []byte {
	column := bytes.Repeat([]byte{1}, 4*n)
	big := squeeze(append(binary.AppendUvarint(nil, uint64(n)), column...))
	root, leaves := big, []byte(nil)
	if leaf {
		length := binary.AppendUvarint(nil, uint64(len(big)))
		root, leaves = squeeze(append(append([]byte{1, 1, 0}, length...), 1)), big
	}
	h := make([]byte, 127)
	copy(h, "PMTiles\x03")
	copy(h[96:], []byte{0, 2, 1, 2, 0, 15})
	at := uint64(len(h))
	for i, part := range [][]byte{root, nil, leaves, {1}} {
		binary.LittleEndian.PutUint64(h[8+16*i:], at)
		binary.LittleEndian.PutUint64(h[16+16*i:], uint64(len(part)))
		at += uint64(len(part))
	}
	return bytes.Join([][]byte{h, root, leaves, {1}}, nil)
}

func squeeze(b []byte) []byte {
	var out bytes.Buffer
	z, _ := gzip.NewWriterLevel(&out, gzip.BestCompression) // a level that exists
	_, _ = z.Write(b)                                       // a buffer takes everything
	_ = z.Close()
	return out.Bytes()
}

// World returns a PMTiles archive of pictures with all tiles of the zoom levels up to max. Each has
// size bytes, which Picture returns.
func World(max uint8, size int) []byte {
	n := (1<<(2*(int(max)+1)) - 1) / 3
	column := func(per, value int) (b []byte) {
		for range per {
			b = binary.AppendUvarint(b, uint64(value))
		}
		return b
	}
	const per = 500 // entries of a leaf
	var top, leaves, lengths, data []byte
	count := 0
	for first := 0; first < n; first += per {
		k := min(per, n-first)
		leaf := binary.AppendUvarint(nil, uint64(k))
		leaf = binary.AppendUvarint(leaf, uint64(first))
		leaf = append(append(leaf, column(k-1, 1)...), append(column(k, 1), column(k, size)...)...)
		leaf = binary.AppendUvarint(leaf, uint64(first*size+1))
		b := squeeze(append(leaf, column(k-1, 0)...))
		top = binary.AppendUvarint(top, uint64(min(first, per)))
		lengths = binary.AppendUvarint(lengths, uint64(len(b)))
		leaves = append(leaves, b...)
		count++
	}
	for id := range n {
		data = append(data, Picture(uint64(id), size)...)
	}
	root := append(binary.AppendUvarint(nil, uint64(count)), top...)
	root = append(append(append(root, column(count, 0)...), lengths...), 1)
	root = squeeze(append(root, column(count-1, 0)...))
	h := make([]byte, 127)
	copy(h, "PMTiles\x03")
	meta := squeeze([]byte(`{"name":"world"}`))
	at := uint64(len(h))
	for i, part := range [][]byte{root, meta, leaves, data} {
		binary.LittleEndian.PutUint64(h[8+16*i:], at)
		binary.LittleEndian.PutUint64(h[16+16*i:], uint64(len(part)))
		binary.LittleEndian.PutUint64(h[72+8*min(i, 2):], uint64(n))
		at += uint64(len(part))
	}
	copy(h[96:], []byte{1, 2, 1, 2, 0, max})
	for i, degrees := range []int32{-180, -85, 180, 85} {
		binary.LittleEndian.PutUint32(h[102+4*i:], uint32(degrees*1e7))
	}
	return bytes.Join([][]byte{h, root, meta, leaves, data}, nil)
}

// Picture returns the bytes of a tile of World, which begin as those of a PNG.
func Picture(id uint64, size int) []byte {
	b := append(make([]byte, 0, size+8), "\x89PNG\r\n\x1a\n"...)
	for r := rand.NewPCG(id, 0); len(b) < size; {
		b = binary.LittleEndian.AppendUint64(b, r.Uint64())
	}
	return b[:size]
}
