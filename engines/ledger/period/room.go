package period

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// What a closing takes, as a rule.
const (
	recordBytes = 350 // of a period file, a record at most

	// rows of the base in the database, with what pages leave free
	accountBytes = 110
	balanceBytes = 107
	holdBytes    = 1 << 10
)

// sampled is how many rows are looked at to know how many balances an account has.
const sampled = 4096

// NoRoomError is returned when a disk has no room for the file of a period, or the database none
// for its base.
type NoRoomError struct {
	Need, Have int64 // bytes
	Path       string
	Base       bool  // Path is the database
	Enough     int64 // store.max_bytes that is enough for the base; 0: the disk lacks the room
}

func (e *NoRoomError) Error() string {
	text := fmt.Sprintf("%s would take about %d MiB, and its disk has %d MiB: name another folder", e.Path, e.Need>>20,
		e.Have>>20)
	if e.Base {
		text = fmt.Sprintf("the state after the period takes about %d MiB in the database, which has room for %d MiB",
			e.Need>>20, e.Have>>20)
	}
	switch {
	case e.Enough != 0:
		text += fmt.Sprintf(": set store.max_bytes to %dMiB", e.Enough>>20)
	case e.Base:
		text += ": make room on its disk"
	}
	return text
}

// hasRoom returns an error unless the disk of a file has room for the lines of so many records, and
// that a 64th of the disk stays free.
func hasRoom(path string, records uint64) error {
	dir := filepath.Dir(path)
	for dir != filepath.Dir(dir) {
		if _, err := os.Stat(dir); err == nil {
			break
		}
		dir = filepath.Dir(dir)
	}
	var disk unix.Statfs_t
	if err := unix.Statfs(dir, &disk); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	unit := int64(disk.Bsize)
	need, have := int64(records)*recordBytes, int64(disk.Bavail)*unit-int64(disk.Blocks)*unit/64
	if disk.Blocks != 0 && have < need {
		return &NoRoomError{Need: need, Have: max(have, 0), Path: path}
	}
	return nil
}

// baseBytes returns about how many bytes the base of all accounts takes.
func baseBytes(r store.Reader) int64 {
	head, _ := tables.GetHead(r)
	rows, accounts := int64(0), int64(0)
	for k := range tables.States(r, tables.StateKey{}) {
		if k.Asset == 0 {
			accounts++
		}
		if rows++; rows == sampled {
			break
		}
	}
	balances := int64(head.Accounts) * (rows - accounts) / max(accounts, 1)
	return int64(head.Accounts)*accountBytes + balances*balanceBytes + int64(head.OpenHolds)*holdBytes
}

// baseFits returns an error unless the database has room for a base of need bytes.
func baseFits(s *store.Store, need int64) error {
	have, limit := s.BytesSpare()
	if need <= have {
		return nil
	}
	e := &NoRoomError{Need: need, Have: have, Path: s.Path(), Base: true}
	if limit != 0 {
		e.Enough = (limit + need - have + 1<<20 - 1) >> 20 << 20
	}
	return e
}
