package mbtiles

import (
	"encoding/binary"
	"fmt"
	"io"
	"regexp"
	"strings"

	"zombiezen.com/go/sqlite"
)

// Bounds of a schema. Writers of MBTiles make fewer than 20 objects of a few hundred bytes each.
const (
	maxObjects     = 1000     // tables, views, indexes and triggers, which every connection holds in memory
	maxSchemaPages = 4096     // pages that are read to count objects
	maxStatement   = 16 << 10 // bytes of a CREATE statement, and of every other statement
	maxView        = 4 << 10  // bytes of the views tiles and metadata
)

// checkSchemaSize counts the objects of the schema in a file of length bytes. It runs before SQLite
// parses the schema, which takes time and memory for each object. It accepts a file that is not a
// database, because SQLite refuses it.
func checkSchemaSize(f io.ReaderAt, length int64) error {
	var head [100]byte
	if n, _ := f.ReadAt(head[:], 0); n < len(head) || string(head[:16]) != "SQLite format 3\x00" {
		return nil
	}
	size := int64(binary.BigEndian.Uint16(head[16:]))
	if size == 1 {
		size = 64 << 10
	}
	if size < 512 {
		return fmt.Errorf("%w: pages of %d bytes", ErrUnfit, size)
	}
	if length%size != 0 {
		return fmt.Errorf("%w: it is cut: %d bytes are not whole pages of %d", ErrUnfit, length, size)
	}
	objects, page, todo := 0, make([]byte, size), []uint32{1}
	for visited := 0; len(todo) > 0; visited++ {
		number := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if n, err := f.ReadAt(page, (int64(number)-1)*size); n < len(page) {
			return fmt.Errorf("%w: page %d of the schema: %v", ErrUnfit, number, err)
		}
		cells, children := schemaPage(page, number)
		objects += cells
		todo = append(todo, children...)
		if objects > maxObjects || visited > maxSchemaPages || len(todo) > maxSchemaPages {
			return fmt.Errorf("%w: its schema has more than %d objects", ErrUnfit, maxObjects)
		}
	}
	return nil
}

// schemaPage returns the number of rows of a leaf page of the schema table, or the pages below an
// interior page. Another page has neither, and SQLite refuses it.
func schemaPage(page []byte, number uint32) (rows int, children []uint32) {
	head := page
	if number == 1 {
		head = page[100:]
	}
	n := int(binary.BigEndian.Uint16(head[3:]))
	switch head[0] {
	case 0x0d: // leaf of a table
		return n, nil
	case 0x05: // interior page of a table
		for i := range n {
			if 12+2*i+2 > len(head) {
				break
			}
			if at := int(binary.BigEndian.Uint16(head[12+2*i:])); at+4 <= len(page) {
				children = append(children, binary.BigEndian.Uint32(page[at:]))
			}
		}
		return 0, append(children, binary.BigEndian.Uint32(head[8:]))
	}
	return 0, nil
}

// object is a row of the schema. SQLite refuses a schema if its types or names differ from its
// statements.
type object struct{ kind, name, sql string }

// virtual reports whether o is a virtual table.
func (o object) virtual() bool { return o.kind == "table" && !strings.HasPrefix(o.sql, "CREATE TABLE") }

// read reports whether requests read o by its name.
func (o object) read() bool {
	return strings.EqualFold(o.name, "tiles") || strings.EqualFold(o.name, "metadata")
}

// quoted returns name as an identifier of SQL.
func quoted(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

var wordWith = regexp.MustCompile(`(?i)\bWITH\b`)

// schema returns the objects of the file.
func schema(c *sqlite.Conn) (all []object, err error) {
	err = rows(
		c,
		fmt.Sprintf("SELECT type, name, sql FROM sqlite_schema LIMIT %d", maxObjects+1),
		func(s *sqlite.Stmt) error {
			all = append(all, object{s.ColumnText(0), s.ColumnText(1), s.ColumnText(2)})
			return nil
		},
	)
	if err == nil && len(all) > maxObjects {
		err = fmt.Errorf("%w: its schema has more than %d objects", ErrUnfit, maxObjects)
	}
	return all, err
}

// checkSchema refuses schemas that could run without end or use unbounded memory: generated
// columns, and tiles or metadata that are neither a table nor a plain view of tables. It reports
// whether the file has virtual tables, which nothing reads. The plans show a view of one.
func checkSchema(c *sqlite.Conn) (virtual bool, err error) {
	all, err := schema(c)
	if err != nil {
		return false, err
	}
	for _, o := range all {
		switch {
		case o.virtual() && o.read():
			return true, fmt.Errorf("%w: %s is a virtual table", ErrUnfit, o.name)
		case o.virtual():
			virtual = true
		case o.kind == "table":
			err = checkColumns(c, o.name)
		case o.kind == "view" && o.read():
			err = checkView(o, all)
		}
		if err != nil {
			return virtual, err
		}
	}
	return virtual, nil
}

// checkColumns refuses generated columns, because each read evaluates their expressions.
func checkColumns(c *sqlite.Conn, table string) error {
	return rows(c, "PRAGMA table_xinfo("+quoted(table)+")", func(s *sqlite.Stmt) error {
		if s.ColumnInt(6) > 1 {
			return fmt.Errorf("%w: column %s of %s is generated", ErrUnfit, s.ColumnText(1), table)
		}
		return nil
	})
}

// checkView refuses a view that names other views or has a WITH clause. SQLite copies a view
// wherever it is named, so that a short text can expand to any size.
func checkView(view object, all []object) error {
	if len(view.sql) > maxView {
		return fmt.Errorf("%w: the view %s has %d bytes, at most %d", ErrUnfit, view.name, len(view.sql), maxView)
	}
	if wordWith.MatchString(view.sql) {
		return fmt.Errorf("%w: the view %s has a WITH clause", ErrUnfit, view.name)
	}
	text := strings.ToLower(view.sql)
	for _, o := range all {
		if o.kind == "view" && o.name != view.name && strings.Contains(text, strings.ToLower(o.name)) {
			return fmt.Errorf("%w: the view %s names the view %s", ErrUnfit, view.name, o.name)
		}
	}
	return nil
}

// plan returns the steps of the query plan.
func plan(c *sqlite.Conn, query string) (steps []string, err error) {
	err = rows(c, "EXPLAIN QUERY PLAN "+strings.ReplaceAll(query, "?", "0"), func(s *sqlite.Stmt) error {
		steps = append(steps, s.ColumnText(3))
		return nil
	})
	return steps, err
}

// checkTilePlan refuses a file in which no index leads to each tile.
func checkTilePlan(c *sqlite.Conn) error {
	steps, err := plan(c, selectTile)
	if err != nil {
		return err
	}
	for _, step := range steps {
		switch {
		case strings.Contains(step, " VIRTUAL TABLE "):
			return fmt.Errorf("%w: %s to find a tile: tiles reads a virtual table", ErrUnfit, step)
		case strings.HasPrefix(step, "SCAN "):
			return fmt.Errorf("%w: %s to find a tile; run sqlite3 FILE "+
				"'CREATE UNIQUE INDEX tile_index ON tiles (zoom_level, tile_column, tile_row)'", ErrUnfit, step)
		case !strings.HasPrefix(step, "SEARCH ") || strings.ContainsAny(step, "<>") || strings.Contains(step, "ANY("):
			return fmt.Errorf("%w: %s to find a tile: tiles must be a table, or a view in which indexes alone "+
				"find a tile", ErrUnfit, step)
		}
	}
	return nil
}

// checkMetadataPlan refuses metadata that is not one scan of one table. Its rows cannot multiply.
func checkMetadataPlan(c *sqlite.Conn) error {
	steps, err := plan(c, selectMetadata)
	if err != nil {
		return err
	}
	if len(steps) != 1 || !strings.HasPrefix(steps[0], "SCAN ") && !strings.HasPrefix(steps[0], "SEARCH ") ||
		strings.Contains(steps[0], " VIRTUAL TABLE ") || strings.Contains(steps[0], "CONSTANT ROW") {
		return fmt.Errorf("%w: %s to read the metadata: metadata must be a table, or a view that renames the "+
			"columns of one", ErrUnfit, strings.Join(steps, ", "))
	}
	return nil
}

// checkWalkPlan refuses a view if a walk would sort or store rows, which needs unbounded memory.
func checkWalkPlan(c *sqlite.Conn, query string) error {
	steps, err := plan(c, query)
	if err != nil {
		return err
	}
	for _, step := range steps {
		if !strings.HasPrefix(step, "SEARCH ") && !strings.HasPrefix(step, "SCAN ") &&
			!strings.HasPrefix(step, "BLOOM FILTER ") {
			return fmt.Errorf("%w: %s to walk its tiles: tiles must be a table, or a view that joins tables", ErrUnfit,
				step)
		}
	}
	return nil
}
