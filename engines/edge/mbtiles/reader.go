package mbtiles

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// ErrUnfit is returned for a file that is invalid or of an unsupported kind. Every error matches it
// except that of a context.
var ErrUnfit = errors.New("mbtiles: invalid file")

const (
	maxTile     = 8 << 20  // bytes of a tile, and of any other value
	maxMetadata = 10 << 20 // bytes of all metadata, as of PMTiles
	// Concurrent reads of a file: enough for the cores of a small machine, few enough for many
	// packs.
	conns   = 4
	maxZoom = 31
)

// Info describes a file by its metadata. Missing zoom levels are derived from the tiles.
type Info struct {
	Name, Description, Attribution string
	Format                         string // as in the metadata: "pbf", "png"; tiles may differ
	MinZoom, MaxZoom               uint8
	Bounds                         [4]float64 // west, south, east, north; the whole world if missing
	Center                         [3]float64 // longitude, latitude, zoom
	JSON                           string     // further metadata of vector layers
}

// Reader reads one file. It is safe for concurrent use.
type Reader struct {
	Info
	pool   *sqlitex.Pool
	within time.Duration // the longest duration of a call, except Verify
}

// Open opens a file and reads its metadata. Open and each later call of Tile fail with ErrUnfit
// after within, because the statements of a hostile file may not end. Open opens all connections,
// so the Reader keeps reading the same file after another file has taken its name.
func Open(ctx context.Context, path string, within time.Duration) (*Reader, error) {
	for _, beside := range []string{"-wal", "-journal"} {
		if st, err := os.Stat(path + beside); err == nil && st.Size() > 0 {
			return nil, fmt.Errorf("%w: it has a %s; close its writer, or run sqlite3 FILE "+
				"'PRAGMA journal_mode=delete'", ErrUnfit, beside[1:])
		}
	}
	if err := checkSchemaFile(path); err != nil {
		return nil, err
	}
	uri := url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: "mode=ro&immutable=1"}
	pool, err := sqlitex.NewPool(uri.String(), sqlitex.PoolOptions{
		Flags: sqlite.OpenReadOnly | sqlite.OpenURI, PoolSize: conns, PrepareConn: confine,
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %v", ErrUnfit, err)
	}
	r := &Reader{pool: pool, within: within}
	if err := r.useBriefly(ctx, "open", r.describe); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

func checkSchemaFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("%w: %v", ErrUnfit, err)
	}
	defer func() { _ = f.Close() }() // it was only read
	st, err := f.Stat()
	if err != nil {
		return fmt.Errorf("%w: %v", ErrUnfit, err)
	}
	return checkSchemaSize(f, st.Size())
}

// Close interrupts running calls and waits for them.
func (r *Reader) Close() { _ = r.pool.Close() } // it was only read

// confine restricts a connection to reading.
func confine(c *sqlite.Conn) error {
	c.Limit(sqlite.LimitLength, maxTile+1024) // a row has a few bytes in addition to its tile
	c.Limit(sqlite.LimitSQLLength, maxStatement)
	c.Limit(sqlite.LimitExprDepth, 100)
	c.Limit(sqlite.LimitCompoundSelect, 4)
	c.Limit(sqlite.LimitAttached, 0)
	for _, pragma := range []string{
		"query_only = on", "trusted_schema = off", "cell_size_check = on", "temp_store = memory", "mmap_size = 0",
		// KiB. For 256 packs with four connections each this is 256 MiB. The system caches the file
		// as well.
		"cache_size = -256",
		"automatic_index = off",         // otherwise SQLite builds an index in memory for some joins
		"ignore_check_constraints = on", // otherwise quick_check evaluates expressions of the file
	} {
		if err := rows(c, "PRAGMA "+pragma, nil); err != nil {
			return err
		}
	}
	return c.SetAuthorizer(sqlite.AuthorizeFunc(allowed))
}

// allowed denies every function call in a view. A call of some functions, such as GLOB on a long
// text, can run for hours, and SQLite checks for an interrupt only between calls.
func allowed(a sqlite.Action) sqlite.AuthResult {
	ok := false
	switch a.Type() {
	case sqlite.OpSelect, sqlite.OpRead:
		ok = true
	case sqlite.OpFunction:
		ok = a.Accessor() == "" // outside of views
	case sqlite.OpPragma:
		ok = a.Pragma() == "quick_check" || a.Pragma() == "table_xinfo"
	}
	if ok {
		return sqlite.AuthResultOK
	}
	return sqlite.AuthResultDeny
}

// errSlow is the cause of the context of a call that took too long.
var errSlow = errors.New("mbtiles: the call took too long")

// useBriefly is use with a limit of r.within.
func (r *Reader) useBriefly(ctx context.Context, doing string, work func(*sqlite.Conn) error) error {
	brief, cancel := context.WithTimeoutCause(ctx, r.within, errSlow)
	defer cancel()
	err := r.use(brief, doing, work)
	switch {
	case err == nil || !errors.Is(err, errSlow):
		return err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return fmt.Errorf("%w: %s: it took more than %v", ErrUnfit, doing, r.within)
}

// use calls work with a connection. The error is that of the file or of the context.
func (r *Reader) use(ctx context.Context, doing string, work func(*sqlite.Conn) error) error {
	c, err := r.pool.Take(ctx)
	if err == nil {
		err = r.lend(c, work)
	}
	if err == nil || errors.Is(err, ErrUnfit) {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("%w: %s: %v", ErrUnfit, doing, err)
}

func (r *Reader) lend(c *sqlite.Conn, work func(*sqlite.Conn) error) error {
	defer r.pool.Put(c) // also after a panic, because Close waits for every connection
	return work(c)
}

const selectTile = "SELECT tile_data FROM tiles WHERE zoom_level = ? AND tile_column = ? AND tile_row = ?"

// describe checks the schema, checks that an index finds each tile, and reads the metadata.
func (r *Reader) describe(c *sqlite.Conn) error {
	if err := checkSchema(c); err != nil {
		return err
	}
	if err := checkTilePlan(c); err != nil {
		return err
	}
	if err := checkWalkPlan(c, countTiles); err != nil {
		return err
	}
	meta, err := readMetadata(c)
	if err != nil {
		return err
	}
	low, err1 := strconv.ParseUint(meta["minzoom"], 10, 8)
	high, err2 := strconv.ParseUint(meta["maxzoom"], 10, 8)
	if err1 != nil || err2 != nil || low > high || high > maxZoom {
		return fmt.Errorf("%w: zoom levels %q to %q, they end at %d", ErrUnfit, meta["minzoom"], meta["maxzoom"],
			maxZoom)
	}
	r.Info = Info{
		Name:        meta["name"],
		Description: meta["description"],
		Attribution: meta["attribution"],
		Format:      meta["format"],
		JSON:        meta["json"],
		MinZoom:     uint8(low),
		MaxZoom:     uint8(high),
		Bounds:      [4]float64{-180, -85.051129, 180, 85.051129},
	}
	numbers(meta["bounds"], r.Bounds[:])
	numbers(meta["center"], r.Center[:])
	return nil
}

// readMetadata reads the metadata for Info. Missing zoom levels are those of the tiles.
func readMetadata(c *sqlite.Conn) (map[string]string, error) {
	meta, size := map[string]string{}, 0
	keep := func(s *sqlite.Stmt) error {
		size += s.ColumnLen(1)
		if size > maxMetadata {
			return fmt.Errorf("%w: metadata has more than %d bytes", ErrUnfit, maxMetadata)
		}
		meta[s.ColumnText(0)] = s.ColumnText(1)
		return nil
	}
	err := rows(c, `SELECT name, value FROM metadata WHERE name IN ('name', 'description', 'attribution',
		'format', 'minzoom', 'maxzoom', 'bounds', 'center', 'json') LIMIT 100`, keep)
	for _, end := range []string{"min", "max"} {
		if _, known := meta[end+"zoom"]; !known && err == nil {
			err = rows(c, fmt.Sprintf("SELECT '%szoom', %[1]s(zoom_level) FROM tiles", end), keep)
		}
	}
	return meta, err
}

// numbers parses a list of len(into) decimal numbers. It leaves into unchanged if the list differs.
func numbers(list string, into []float64) {
	words, out := strings.Split(list, ","), make([]float64, len(into))
	for i := range out {
		v, err := strconv.ParseFloat(strings.TrimSpace(words[min(i, len(words)-1)]), 64)
		if out[i] = v; err != nil || !(math.Abs(v) <= 360) || len(words) != len(into) {
			return
		}
	}
	copy(into, out)
}

// rows runs a statement without parameters.
func rows(c *sqlite.Conn, sql string, visit func(*sqlite.Stmt) error) error {
	return sqlitex.ExecuteTransient(c, sql, &sqlitex.ExecOptions{ResultFunc: visit})
}

// Tile returns a tile as it is stored, or nil if the file has no such tile. z is at most 31, x and
// y are below 2^z.
func (r *Reader) Tile(ctx context.Context, z uint8, x, y uint32) (tile []byte, err error) {
	err = r.useBriefly(ctx, fmt.Sprintf("tile %d/%d/%d", z, x, y), func(c *sqlite.Conn) error {
		s, err := c.Prepare(selectTile)
		if err != nil {
			return err
		}
		defer func() { _ = s.Reset() }() // it repeats the error of Step
		s.BindInt64(1, int64(z))
		s.BindInt64(2, int64(x))
		s.BindInt64(3, 1<<z-1-int64(y))
		found, err := s.Step()
		if err != nil || !found {
			return err
		}
		if n := s.ColumnLen(0); n > 0 {
			tile = make([]byte, n)
			s.ColumnBytes(0, tile)
		}
		return nil
	})
	return tile, err
}

// countTiles counts the tiles, and those that no request can name, that are too long, or that are
// numbers.
var countTiles = fmt.Sprintf(
	`SELECT count(*), count(*) FILTER (WHERE typeof(zoom_level) <> 'integer' OR zoom_level NOT BETWEEN 0 AND %d
	OR typeof(tile_column) <> 'integer' OR tile_column NOT BETWEEN 0 AND (1 << zoom_level) - 1
	OR typeof(tile_row) <> 'integer' OR tile_row NOT BETWEEN 0 AND (1 << zoom_level) - 1
	OR typeof(tile_data) IN ('integer', 'real') OR length(tile_data) > %d) FROM tiles`, maxZoom, maxTile)

// Verify checks the pages of the file, and the position, type and size of every tile. It calls
// fault for each defect and returns the number of tiles. The error is the cause of ctx.
func (r *Reader) Verify(ctx context.Context, fault func(string)) (tiles uint64, err error) {
	err = r.use(ctx, "verify", func(c *sqlite.Conn) error {
		err := rows(c, "PRAGMA quick_check(100)", func(s *sqlite.Stmt) error {
			if text := s.ColumnText(0); text != "ok" {
				fault("quick_check: " + text)
			}
			return nil
		})
		if err != nil {
			return err
		}
		return rows(c, countTiles, func(s *sqlite.Stmt) error {
			tiles = uint64(s.ColumnInt64(0))
			if bad := s.ColumnInt64(1); bad > 0 {
				fault(fmt.Sprintf("tiles: %d of %d are outside of their zoom level, longer than %d bytes, "+
					"or not of type BLOB", bad, tiles, maxTile))
			}
			return nil
		})
	})
	if errors.Is(err, ErrUnfit) {
		fault(err.Error())
		return tiles, nil
	}
	return tiles, err
}
