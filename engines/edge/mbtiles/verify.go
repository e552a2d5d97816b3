package mbtiles

import (
	"context"
	"errors"
	"fmt"

	"zombiezen.com/go/sqlite"

	"ronbox/engines/edge/tile"
)

// skips lists the kinds of rows that no request can name or that are not served, and the columns of
// countTiles that count them.
var skips = []struct {
	code tile.Code
	text string
}{
	{tile.CodeType, "a position that is not a whole number, or a number for a tile"},
	{tile.CodeOutside, "a position outside of its zoom level"},
	{tile.CodeEmpty, "no bytes"},
	{tile.CodeLong, "a tile that is too long"},
}

// kind is an expression that returns the index of the kind of a row in skips, or -1.
const kind = `CASE WHEN typeof(zoom_level) <> 'integer' OR typeof(tile_column) <> 'integer'
	OR typeof(tile_row) <> 'integer' OR ` + numeric + ` THEN 0
	WHEN zoom_level NOT BETWEEN 0 AND %[1]d OR tile_column NOT BETWEEN 0 AND (1 << zoom_level) - 1
	OR tile_row NOT BETWEEN 0 AND (1 << zoom_level) - 1 THEN 1
	WHEN ifnull(octet_length(tile_data), 0) = 0 THEN 2 WHEN octet_length(tile_data) > %[2]d THEN 3 ELSE -1 END`

// countTiles returns the query that counts the tiles, and those of each kind of skips.
func (r *Reader) countTiles() string {
	query, of := "SELECT count(*)", fmt.Sprintf(kind, maxZoom, r.MaxTile)
	for i := range skips {
		query += fmt.Sprintf(", count(*) FILTER (WHERE %s = %d)", of, i)
	}
	return query + " FROM tiles"
}

// Verify checks the pages of the file, and the position, type and size of every tile, and reads a
// sample of the first tiles. It calls c.Found for each defect and returns the number of tiles. The
// error is the cause of ctx.
func (r *Reader) Verify(ctx context.Context, c tile.Check) (tiles uint64, err error) {
	for _, f := range r.findings {
		c.Found(f)
	}
	fatal := func(text string) { c.Found(tile.Finding{Text: text, Count: 1, Fatal: true}) }
	err = r.use(ctx, "verify", func(conn *sqlite.Conn) error {
		if err := r.checkPages(conn, fatal); err != nil {
			return err
		}
		err := rows(conn, r.countTiles(), func(s *sqlite.Stmt) error {
			tiles = uint64(s.ColumnInt64(0))
			for i, skip := range skips {
				if n := s.ColumnInt64(i + 1); n > 0 {
					text := fmt.Sprintf("%d of %d rows of tiles have %s", n, tiles, skip.text)
					c.Found(tile.Finding{Code: skip.code, Text: text, Count: uint64(n)})
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		return r.sample(conn, c)
	})
	if errors.Is(err, ErrUnfit) {
		fatal(err.Error())
		return tiles, nil
	}
	return tiles, err
}

// checkPages runs quick_check. A file with virtual tables has each other table checked by itself,
// because a check of the whole file calls the modules of these tables, which read what they like.
func (r *Reader) checkPages(c *sqlite.Conn, fatal func(string)) error {
	tables := []string{""}
	if r.virtual {
		all, err := schema(c)
		if err != nil {
			return err
		}
		tables = nil
		for _, o := range all {
			if o.kind == "table" && !o.virtual() {
				tables = append(tables, quoted(o.name))
			}
		}
	}
	for _, table := range tables {
		if table == "" {
			table = "100" // faults at most
		}
		err := rows(c, "PRAGMA quick_check("+table+")", func(s *sqlite.Stmt) error {
			if text := s.ColumnText(0); text != "ok" {
				fatal("quick_check: " + text)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// sample reads the first tiles that are not skipped.
func (r *Reader) sample(conn *sqlite.Conn, c tile.Check) error {
	query := fmt.Sprintf("SELECT tile_data FROM tiles WHERE "+kind+" = -1 LIMIT %[3]d", maxZoom, r.MaxTile,
		tile.MaxSample)
	return rows(conn, query, func(s *sqlite.Stmt) error {
		b := make([]byte, s.ColumnLen(0))
		s.ColumnBytes(0, b)
		c.Sample(b)
		return nil
	})
}
