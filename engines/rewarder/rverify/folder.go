package rverify

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"ronbox/appliance/b3"
)

const (
	bufferSize  = 64 << 10 // buffer of a file; a row has at most 400 bytes
	maxDocument = 1 << 20  // bound of policy.json, snapshot.json and ledger.json, which are held in memory
)

// Write creates the folder dir with the files of the run. dir must not exist, or be empty. If Write
// fails, it removes the files that it has written.
func (r *Run) Write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if there, err := os.ReadDir(dir); err != nil || len(there) > 0 {
		return cmp.Or(err, fmt.Errorf("%s is not empty: name a new folder, or remove this one if its run was cut", dir))
	}
	made, err := r.writeFiles(dir)
	if err != nil {
		for _, path := range made {
			err = errors.Join(err, os.Remove(path))
		}
	}
	return err
}

// writeFiles writes the files of the run. It returns the paths of those that it has made, even with
// an error.
func (r *Run) writeFiles(dir string) (made []string, err error) {
	for _, name := range fileNames {
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if err != nil {
			return made, err
		}
		made = append(made, f.Name())
		if err := errors.Join(r.writeFile(name, f), f.Close()); err != nil {
			return made, err
		}
	}
	return made, nil
}

// Verify computes the run of a folder again and compares each byte with its files. It returns a
// *FieldError if the folder is not sound. It streams the files, so its memory depends only on the
// number of actors.
func Verify(dir string) (r Run, err error) {
	for _, name := range fileNames {
		if _, err := os.Stat(filepath.Join(dir, name)); errors.Is(err, fs.ErrNotExist) {
			return r, wrong(name, "is missing")
		}
	}
	var in Inputs
	for i, parse := range []func(raw []byte) error{
		func(raw []byte) (err error) { in.Policy, err = ParsePolicy(raw); return err },
		func(raw []byte) (err error) { in.Snapshot, err = parseSnapshot(raw); return err },
		func(raw []byte) (err error) { in.Ledger, err = ParseLedger(raw); return err },
	} {
		raw, err := readDocument(filepath.Join(dir, fileNames[i]))
		if err == nil {
			err = parse(raw)
		}
		if err != nil {
			return r, within(fileNames[i], err)
		}
	}
	rows := rowFile{path: filepath.Join(dir, "rows.ndjson")}
	if r, err = recompute(in, rows.each); err != nil {
		return r, err
	}
	for _, name := range fileNames {
		if name == "rows.ndjson" {
			continue // its spelling was checked while it was read
		}
		if err := r.compare(dir, name); err != nil {
			return Run{}, err
		}
	}
	return r, nil
}

func readDocument(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	raw, err := io.ReadAll(io.LimitReader(f, maxDocument+1))
	if err == nil && len(raw) > maxDocument {
		err = wrong("", "is larger than %d bytes", maxDocument)
	}
	return raw, err
}

// rowFile is rows.ndjson: canonical lines in strictly ascending order.
type rowFile struct {
	path string
	sum  b3.Digest // digest of the first pass, which checks the rows; zero before
}

// each calls yield for each row until it fails. It returns a fault if a later pass reads other
// bytes than the first one.
func (f *rowFile) each(yield func(*Row) error) error {
	file, err := os.Open(f.path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // only read
	hash := b3.New()
	if err := readRows(io.TeeReader(file, hash), f.sum.IsZero(), yield); err != nil {
		return within("rows.ndjson", err)
	}
	sum := hash.Sum32()
	if !f.sum.IsZero() && f.sum != sum {
		return wrong("rows.ndjson", "has changed while it was read")
	}
	f.sum = sum
	return nil
}

// readRows calls yield for each line of rows.ndjson. The first pass also checks the rows.
func readRows(file io.Reader, first bool, yield func(*Row) error) error {
	in := bufio.NewReaderSize(file, bufferSize)
	metrics := map[string]string{} // name to shared name: rows share one string
	var row, last Row
	for line := 1; ; line++ {
		raw, err := in.ReadSlice('\n')
		if err == io.EOF && len(raw) == 0 {
			return nil
		}
		if err != nil && err != io.EOF && err != bufio.ErrBufferFull {
			return err
		}
		if !row.parse(raw, &last, metrics) {
			return wrong(lineName(line),
				"is not a row in canonical form: known members, sorted, all strings, no spaces, a line end")
		}
		if first {
			if err := row.check(line); err != nil {
				return err
			}
			if line > 1 && compareRows(&last, &row) >= 0 {
				return wrong(lineName(line),
					"must come before the line above it: rows are sorted by actor, content and metric, each once")
			}
		}
		if err := yield(&row); err != nil {
			return err
		}
		last = row
	}
}

// parse parses a row in canonical spelling and reports whether raw has this form. It does not check
// the grammars. It shares strings with the previous row.
func (r *Row) parse(raw []byte, last *Row, metrics map[string]string) bool {
	actor, raw, ok := cutText(raw, `{"actor":"`)
	content, rest, has := cutText(raw, `,"content":"`)
	if has {
		raw = rest
	}
	metric, raw, good := cutText(raw, `,"metric":"`)
	qty, raw, whole := cutText(raw, `,"qty":"`)
	if !ok || has && len(content) == 0 || !good || !whole || string(raw) != "}\n" {
		return false
	}
	r.Actor, r.Content, r.Metric, r.Qty = last.Actor, string(content), metrics[string(metric)], string(qty)
	if string(actor) != last.Actor {
		r.Actor = string(actor)
	}
	if r.Metric == "" {
		r.Metric = string(metric)
		if metricName.MatchString(r.Metric) && len(metrics) < maxMetrics {
			metrics[r.Metric] = r.Metric
		}
	}
	return true
}

// maxMetrics bounds the shared names of metrics. A run has a handful.
const maxMetrics = 256

// cutText cuts off the string that follows open, up to its closing quote.
func cutText(raw []byte, open string) (text, rest []byte, ok bool) {
	rest, ok = bytes.CutPrefix(raw, []byte(open))
	if ok {
		text, rest, ok = bytes.Cut(rest, []byte{'"'})
	}
	return text, rest, ok
}
