package mbtiles

import (
	"context"
	"time"

	"zombiezen.com/go/sqlite"
)

// Conns is the number of connections of a reader.
const Conns = conns

// CheckSchemaSize is checkSchemaSize.
var CheckSchemaSize = checkSchemaSize

// SetWithin changes the bound of a call.
func (r *Reader) SetWithin(d time.Duration) { r.Within = d }

// Try runs a statement.
func (r *Reader) Try(ctx context.Context, sql string) error {
	return r.use(ctx, "try", func(c *sqlite.Conn) error { return rows(c, sql, nil) })
}
