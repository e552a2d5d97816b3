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

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// ErrUnfit is a file that is not sound, or of a kind that is not read. Every error but that of a context is it.
var ErrUnfit = errors.New("mbtiles: not a fit file")

const (
	maxTile = 8 << 20 // bytes of a tile, and of any other value
	conns   = 4       // tiles of a file read at once: enough for the cores of a small box, few enough for many packs
	maxZoom = 31
)

// Info is what a file says of itself. Zoom levels that its metadata lacks are those of its tiles.
type Info struct {
	Name, Description, Attribution string
	Format                         string // as it is written: "pbf", "png"; tiles may differ
	MinZoom, MaxZoom               uint8
	Bounds                         [4]float64 // west, south, east, north; all the world if it is not said
	Center                         [3]float64 // longitude, latitude, zoom
	JSON                           string     // further metadata, of vector layers
}

// Reader reads one file. Safe for concurrent use.
type Reader struct {
	Info
	pool *sqlitex.Pool
}

// Open opens a file and reads its metadata, within ctx.
func Open(ctx context.Context, path string) (*Reader, error) {
	for _, beside := range []string{"-wal", "-journal"} {
		if st, err := os.Stat(path + beside); err == nil && st.Size() > 0 {
			return nil, fmt.Errorf("%w: it has a %s; close what writes it, or run sqlite3 FILE 'PRAGMA journal_mode=delete'", ErrUnfit, beside[1:])
		}
	}
	uri := url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: "mode=ro&immutable=1"}
	pool, err := sqlitex.NewPool(uri.String(), sqlitex.PoolOptions{
		Flags: sqlite.OpenReadOnly | sqlite.OpenURI, PoolSize: conns, PrepareConn: confine,
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %v", ErrUnfit, err)
	}
	r := &Reader{pool: pool}
	if err := r.use(ctx, "metadata", r.describe); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// Close waits for the calls under way, which it interrupts.
func (r *Reader) Close() { _ = r.pool.Close() } // nothing was written

// confine makes a connection one that only reads.
func confine(c *sqlite.Conn) error {
	c.Limit(sqlite.LimitLength, maxTile+1024) // a row has a few bytes beside its tile
	for _, pragma := range []string{
		"query_only = on", "trusted_schema = off", "cell_size_check = on", "temp_store = memory", "mmap_size = 0", "cache_size = -2048",
	} {
		if err := rows(c, "PRAGMA "+pragma, nil); err != nil {
			return err
		}
	}
	return c.SetAuthorizer(sqlite.AuthorizeFunc(allowed))
}

func allowed(a sqlite.Action) sqlite.AuthResult {
	if t := a.Type(); t == sqlite.OpSelect || t == sqlite.OpRead || t == sqlite.OpFunction || t == sqlite.OpPragma && a.Pragma() == "quick_check" {
		return sqlite.AuthResultOK
	}
	return sqlite.AuthResultDeny
}

// use lends a connection to work. An error is of the file or of the context.
func (r *Reader) use(ctx context.Context, doing string, work func(*sqlite.Conn) error) error {
	c, err := r.pool.Take(ctx)
	if err == nil {
		err = work(c)
		r.pool.Put(c)
	}
	if err == nil || errors.Is(err, ErrUnfit) {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("%w: %s: %v", ErrUnfit, doing, err)
}

const selectTile = "SELECT tile_data FROM tiles WHERE zoom_level = ? AND tile_column = ? AND tile_row = ?"

// describe reads metadata and proves that tiles can be found.
func (r *Reader) describe(c *sqlite.Conn) error {
	err := rows(c, "EXPLAIN QUERY PLAN "+strings.ReplaceAll(selectTile, "?", "0"), func(s *sqlite.Stmt) error {
		if step := s.ColumnText(3); strings.HasPrefix(step, "SCAN ") {
			return fmt.Errorf("%w: %s to find a tile; run sqlite3 FILE 'CREATE UNIQUE INDEX tile_index ON tiles (zoom_level, tile_column, tile_row)'",
				ErrUnfit, step)
		}
		return nil
	})
	meta := map[string]string{}
	keep := func(s *sqlite.Stmt) error { meta[s.ColumnText(0)] = s.ColumnText(1); return nil }
	if err == nil {
		err = rows(c, "SELECT name, value FROM metadata LIMIT 1000", keep)
	}
	for _, end := range []string{"min", "max"} {
		if _, known := meta[end+"zoom"]; !known && err == nil {
			err = rows(c, fmt.Sprintf("SELECT '%szoom', %[1]s(zoom_level) FROM tiles", end), keep)
		}
	}
	if err != nil {
		return err
	}
	low, err1 := strconv.ParseUint(meta["minzoom"], 10, 8)
	high, err2 := strconv.ParseUint(meta["maxzoom"], 10, 8)
	if err1 != nil || err2 != nil || low > high || high > maxZoom {
		return fmt.Errorf("%w: zoom levels %q to %q, they end at %d", ErrUnfit, meta["minzoom"], meta["maxzoom"], maxZoom)
	}
	r.Info = Info{
		Name: meta["name"], Description: meta["description"], Attribution: meta["attribution"], Format: meta["format"], JSON: meta["json"],
		MinZoom: uint8(low), MaxZoom: uint8(high), Bounds: [4]float64{-180, -85.051129, 180, 85.051129},
	}
	numbers(meta["bounds"], r.Bounds[:])
	numbers(meta["center"], r.Center[:])
	return nil
}

// numbers reads a list of as many decimal numbers as into has. Another list leaves into as it is.
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

// Tile reads a tile as it is stored; nil if the file has no such tile. z is at most 31, x and y are below 2^z.
func (r *Reader) Tile(ctx context.Context, z uint8, x, y uint32) (tile []byte, err error) {
	err = r.use(ctx, fmt.Sprintf("tile %d/%d/%d", z, x, y), func(c *sqlite.Conn) error {
		s, err := c.Prepare(selectTile)
		if err != nil {
			return err
		}
		defer s.Reset()
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

// Verify checks the pages of the file and the place and size of every tile. It tells fault of each thing that is wrong, and returns how
// many tiles there are; its error is the cause of ctx.
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
		return rows(c, fmt.Sprintf(`SELECT count(*), count(*) FILTER (WHERE zoom_level NOT BETWEEN 0 AND %d
			OR tile_column NOT BETWEEN 0 AND (1 << zoom_level) - 1 OR tile_row NOT BETWEEN 0 AND (1 << zoom_level) - 1
			OR length(tile_data) > %d) FROM tiles`, maxZoom, maxTile), func(s *sqlite.Stmt) error {
			tiles = uint64(s.ColumnInt64(0))
			if bad := s.ColumnInt64(1); bad > 0 {
				fault(fmt.Sprintf("tiles: %d of %d are outside of their zoom level or longer than %d bytes", bad, tiles, maxTile))
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
