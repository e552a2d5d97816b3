package archive

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"ronbox/appliance/b3"
	"ronbox/appliance/host"
	"ronbox/store"
)

// Reasons for which a line begins.
const (
	reasonFirst       = "first"
	reasonGap         = "gap"         // the line before lacks an entry
	reasonFull        = "full"        // there was no space for the line before
	reasonSchema      = "schema"      // the file has other buckets
	reasonIncarnation = "incarnation" // the file was restored
	reasonSigner      = "signer"      // another key has signed the line before
	reasonForeign     = "foreign"     // another node writes the line before
)

// recordName is the name of the file of the record.
const recordName = "state.json"

// record is what the archive knows of its lines, and keeps in a file. A published value is not
// changed.
type record struct {
	Format      int       `json:"format"`
	Target      string    `json:"target"`
	Lines       []line    `json:"lines"`   // oldest first; the last one is the current one
	Foreign     bool      `json:"foreign"` // another node has written into a line of this one
	LastSuccess time.Time `json:"last_success,omitzero"`
}

// line is an unbroken chain of log objects, with the bases along it.
type line struct {
	ID          string         `json:"id"`
	NodeID      string         `json:"node_id"`
	Incarnation string         `json:"incarnation"`
	Schema      int            `json:"schema"`
	Buckets     b3.Digest      `json:"buckets"` // of their declarations
	Signer      string         `json:"signer"`
	Reason      string         `json:"reason"`
	Ended       string         `json:"ended,omitzero"` // reason of the line after it
	Began       store.Position `json:"began"`
	At          store.Position `json:"at"`                 // end of the last log object that was made
	Last        b3.Digest      `json:"last"`               // sum of its last entry
	Sum         string         `json:"sum"`                // of the object; "": none was made
	SentName    string         `json:"sent_name,omitzero"` // of the log object that was last sent
	SentSeq     uint64         `json:"sent_seq"`
	SentAt      time.Time      `json:"sent_at,omitzero"`
	SentBytes   int64          `json:"sent_bytes"` // of log objects since the newest complete base
	Base        *base          `json:"base,omitzero"`
	Next        *base          `json:"next,omitzero"` // being sent
	Lost        uint64         `json:"lost,omitzero"` // command of a base whose snapshot was lost while it was sent
}

// base is a snapshot in parts.
type base struct {
	Seq    uint64    `json:"seq"`
	At     int64     `json:"at"` // stamp of the last command, Unix ns
	File   string    `json:"file"`
	Bytes  int64     `json:"bytes"` // of the file
	Parts  int       `json:"parts"`
	Sent   int       `json:"sent"` // parts in the target
	MadeAt time.Time `json:"made_at"`
	DoneAt time.Time `json:"done_at,omitzero"`
}

// used reports whether something of this node may be in the target. That of a dropped line counts.
func (r *record) used() bool {
	return !r.LastSuccess.IsZero() || slices.ContainsFunc(r.Lines, func(l line) bool {
		return l.SentSeq > 0 || l.Base != nil || l.Next != nil && l.Next.Sent > 0
	})
}

// current returns the last line, or nil.
func (r *record) current() *line {
	if len(r.Lines) == 0 {
		return nil
	}
	return &r.Lines[len(r.Lines)-1]
}

// find returns the line with an id, or nil.
func (r *record) find(id string) *line {
	for i := range r.Lines {
		if r.Lines[i].ID == id {
			return &r.Lines[i]
		}
	}
	return nil
}

// recordFile keeps the record and its file.
type recordFile struct {
	path string
	mu   sync.Mutex // held over the write of the file; a leaf
	now  atomic.Pointer[record]
}

// open reads the file. A file that cannot be read counts as none.
func (l *recordFile) open() error {
	l.now.Store(&record{Format: 1})
	raw, err := os.ReadFile(l.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var r record
	if err == nil {
		err = json.Unmarshal(raw, &r)
	}
	if err == nil && r.Format != 1 {
		err = fmt.Errorf("format %d", r.Format)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", l.path, err)
	}
	l.now.Store(&r)
	return nil
}

// read returns the record, which must not be changed.
func (l *recordFile) read() *record { return l.now.Load() }

// update changes the record and its file. After an error the record is the old one.
func (l *recordFile) update(change func(*record)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	next := *l.now.Load()
	next.Lines = slices.Clone(next.Lines)
	change(&next) //lockwait: it only sets fields
	raw, err := json.Marshal(&next, jsontext.WithIndent("  "))
	if err != nil {
		return err
	}
	//lockwait: only tasks of the archive wait for it
	err = host.ReplaceFile(l.path, 0o600, func(w io.Writer) error {
		_, err := w.Write(append(raw, '\n'))
		return err
	})
	if err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(l.path), err)
	}
	l.now.Store(&next)
	return nil
}
