package mbtiles

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"ronbox/engines/edge/tile"
)

// ErrUnfit is returned for a file that is invalid or of an unsupported kind. Every error matches it
// except that of a context.
var ErrUnfit = errors.New("mbtiles: invalid file")

const (
	// Concurrent reads of a file: enough for the cores of a small machine, few enough for many
	// packs.
	conns   = 4
	maxZoom = 31
	small   = 1 << 20 // bytes of a tile that is read without asking for room
)

// Limits bound a Reader.
type Limits struct {
	Within      time.Duration // the longest duration of Open and of a call of Tile
	MaxTile     int64         // bytes; a longer tile is skipped
	MaxMetadata int64         // bytes of the metadata that Info has; what exceeds them is left out
}

// value returns the longest value that SQLite may hold. A row has a few bytes besides its tile.
func (l Limits) value() int32 { return int32(max(l.MaxTile, l.MaxMetadata) + 1024) }

// Info describes a file by its metadata. Missing zoom levels are derived from the tiles.
type Info struct {
	Name, Description, Attribution string
	Version, Type                  string // of the tileset: "2.1.0", "overlay"
	Format                         string // as in the metadata: "pbf", "image/png"; tiles may differ
	MinZoom, MaxZoom               uint8
	Bounds                         [4]float64 // west, south, east, north; zero if unknown
	Center                         [3]float64 // longitude, latitude, zoom
	JSON                           string     // further metadata of vector layers
}

// Reader reads one file. It is safe for concurrent use.
type Reader struct {
	Info
	Limits
	pool     *sqlitex.Pool
	findings []tile.Finding // of the metadata
	virtual  bool           // the file has virtual tables
}

// Open opens a file and reads its metadata. Open and each later call of Tile fail with ErrUnfit
// after l.Within, because the statements of a hostile file may not end. Open opens all connections,
// so the Reader keeps reading the same file after another file has taken its name.
func Open(ctx context.Context, path string, l Limits) (*Reader, error) {
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
		Flags: sqlite.OpenReadOnly | sqlite.OpenURI, PoolSize: conns, PrepareConn: l.confine,
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %v", ErrUnfit, err)
	}
	r := &Reader{pool: pool, Limits: l}
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
func (l Limits) confine(c *sqlite.Conn) error {
	c.Limit(sqlite.LimitLength, l.value())
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

// useBriefly is use with a limit of r.Within.
func (r *Reader) useBriefly(ctx context.Context, doing string, work func(*sqlite.Conn) error) error {
	brief, cancel := context.WithTimeoutCause(ctx, r.Within, errSlow)
	defer cancel()
	err := r.use(brief, doing, work)
	switch {
	case err == nil || !errors.Is(err, errSlow):
		return err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return fmt.Errorf("%w: %s: it took more than %v", ErrUnfit, doing, r.Within)
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

// rows runs a statement without parameters.
func rows(c *sqlite.Conn, sql string, visit func(*sqlite.Stmt) error) error {
	return sqlitex.ExecuteTransient(c, sql, &sqlitex.ExecOptions{ResultFunc: visit})
}

// Positions and data of tiles. A text is a tile too. Only the typeof and the octet_length of a long
// value are read without the value.
const (
	where   = " FROM tiles WHERE zoom_level = ? AND tile_column = ? AND tile_row = ?"
	numeric = "typeof(tile_data) IN ('integer', 'real')"
)

// selectTile returns whether tile_data is a number, its length, and its bytes if it is small.
var selectTile = fmt.Sprintf("SELECT %s, ifnull(octet_length(tile_data), 0), "+
	"CASE WHEN octet_length(tile_data) <= %d THEN tile_data END"+where, numeric, small)

const selectLong = "SELECT 0, octet_length(tile_data), tile_data" + where

// Tile returns a tile as it is stored, or nil if the file has no such tile. z is at most 31, x and
// y are below 2^z. It calls room with the length of a long tile before it reads it, without a
// connection, and returns the error of room. It returns tile.ErrSkipped for a tile that is empty,
// too long or a number.
func (r *Reader) Tile(ctx context.Context, z uint8, x, y uint32, room func(int64) error) ([]byte, error) {
	row, err := r.row(ctx, selectTile, z, x, y)
	switch {
	case err != nil || !row.found:
		return nil, err
	case row.numeric || row.length == 0 || row.length > r.MaxTile:
		return nil, tile.ErrSkipped
	case row.length <= small:
		return row.data, nil
	}
	if err := room(row.length); err != nil {
		return nil, err
	}
	row, err = r.row(ctx, selectLong, z, x, y)
	return row.data, err
}

// row is the row of a tile.
type row struct {
	found, numeric bool
	length         int64
	data           []byte
}

// row reads the row of a tile with a query that selects it.
func (r *Reader) row(ctx context.Context, query string, z uint8, x, y uint32) (out row, err error) {
	err = r.useBriefly(ctx, fmt.Sprintf("tile %d/%d/%d", z, x, y), func(c *sqlite.Conn) error {
		s, err := c.Prepare(query)
		if err != nil {
			return err
		}
		defer func() { _ = s.Reset() }() // it repeats the error of Step
		s.BindInt64(1, int64(z))
		s.BindInt64(2, int64(x))
		s.BindInt64(3, 1<<z-1-int64(y))
		if out.found, err = s.Step(); err != nil || !out.found {
			return err
		}
		out.numeric, out.length = s.ColumnBool(0), s.ColumnInt64(1)
		if n := s.ColumnLen(2); n > 0 {
			out.data = make([]byte, n)
			s.ColumnBytes(2, out.data)
		}
		return nil
	})
	return out, err
}
