package lverify

import (
	"fmt"

	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// checkFormat refuses tables that are laid out as this program does not know. A ledger that has not begun has none.
func checkFormat(r store.Reader) error {
	if f, begun := tables.GetFormat(r); begun && f != tables.Format {
		return fmt.Errorf("the format of the tables is %d, this program knows %d: %w", f, tables.Format, store.ErrSchema)
	}
	return nil
}
