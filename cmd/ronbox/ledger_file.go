package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
)

// isExport tells an export from a database by how it begins. A file that somebody named may also be neither.
func isExport(file string, named bool) (bool, error) {
	f, err := os.Open(file)
	if err != nil {
		return false, err
	}
	defer func() { _ = f.Close() }() // only read
	head := make([]byte, largestPage+metaMagicAt+len(metaMagic))
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return false, err
	}
	switch head = head[:n]; {
	case n > 0 && head[0] == '{':
		return true, nil
	case !named || hasMeta(head):
		return false, nil
	case n == 0:
		return false, notALedger(file, "it is empty")
	}
	return false, notALedger(file, fmt.Sprintf("it begins with %q", head[:min(n, 16)]))
}

func notALedger(file, why string) error {
	return failed(exitFailed, "not_a_ledger", "name a database, a snapshot or an export; if it was a snapshot, it is damaged: take another",
		"%s is neither a database nor an export: %s", file, why)
}

// A database has the magic number of bbolt in one of its first two pages at least.
const (
	smallestPage = 4 << 10
	largestPage  = 64 << 10
	metaMagicAt  = 16
	metaMagic    = "\xed\xda\x0c\xed"
)

func hasMeta(head []byte) bool {
	at := func(page int) bool {
		return len(head) >= page+metaMagicAt && bytes.HasPrefix(head[page+metaMagicAt:], []byte(metaMagic))
	}
	for page := smallestPage; page <= largestPage; page *= 2 {
		if at(page) {
			return true
		}
	}
	return at(0)
}
