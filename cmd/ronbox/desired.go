package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"ronbox/engines/registry/record"
)

// maxDesired bounds one line and maxLines the lines of a desired state: twice what the registry takes, so that the
// registry's own limit is the one that speaks.
const (
	maxDesired = 64 << 10
	maxLines   = 2 * 65_536
)

// readDesired reads a whole desired state: one descriptor a line, empty lines left out; "-" is stdin.
func (a *app) readDesired(path string) (record.Items, error) {
	if path == "-" {
		return parseDesired("stdin", a.stdin)
	}
	f, err := os.Open(path)
	if err != nil {
		return record.Items{}, err
	}
	defer func() { _ = f.Close() }() // only read
	return parseDesired(path, f)
}

func parseDesired(name string, r io.Reader) (record.Items, error) {
	var items []record.Item
	lines := map[string]int{} // id to the line that holds it
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 0, maxDesired), maxDesired)
	n := 1
	for ; s.Scan(); n++ {
		if n == 1 && bytes.HasPrefix(s.Bytes(), []byte("\xef\xbb\xbf")) {
			return record.Items{}, failed(exitFailed, "malformed", "save the file as UTF-8 without it", "%s:1: begins with a byte order mark", name)
		}
		if len(bytes.TrimSpace(s.Bytes())) == 0 {
			continue
		}
		it, err := record.ParseItem(bytes.Clone(s.Bytes()))
		if err != nil {
			return record.Items{}, fmt.Errorf("%s:%d: %w", name, n, err)
		}
		if first, twice := lines[it.ID]; twice {
			return record.Items{}, failed(exitFailed, "malformed", "keep one of the two lines", "%s:%d: %s stands in line %d already", name, n, it.ID, first)
		}
		if lines[it.ID] = n; n > maxLines {
			return record.Items{}, failed(exitFailed, "hard_limit", "", "%s has more than %d lines", name, maxLines)
		}
		items = append(items, it)
	}
	if err := s.Err(); errors.Is(err, bufio.ErrTooLong) {
		return record.Items{}, failed(exitFailed, "hard_limit", "", "%s:%d: the line is longer than %d bytes", name, n, maxDesired)
	} else if err != nil {
		return record.Items{}, reading(name, err)
	}
	return record.NewItems(items)
}
