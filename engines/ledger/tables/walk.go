package tables

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"slices"

	"ronbox/appliance/b3"
	"ronbox/engines/ledger/record"
	"ronbox/store"
)

// Query asks for a page of the history of a balance.
type Query struct {
	Of           StateKey
	Top          Balance // as published: later postings are not read
	Floor        Balance // after the horizon: its postings are not read
	Oldest       bool    // oldest first, else newest first
	Limit        int     // entries of a page, at least 1
	Since, Until int64   // Unix ns: at or after Since, before Until; 0: no bound
	Cursor       string  // of the page before; "" for the first one
	Key          StoreKey

	// Mark returns the marks that are not in the file yet; nil if there are none.
	Mark func(n uint64) (seq uint64, known bool)
}

// Posting is one entry of a history.
type Posting struct {
	N      uint64 // from 1 on, in the order of the journal
	Record record.Record
	Image  int // of Record.Images: the balance after it
}

// Walk reads one page of history, in as many views as its caller likes. It serves one goroutine.
type Walk struct {
	q       Query
	cursors cursors
	// newest first: the next posting to read; oldest first: the first posting of the chunk, of
	// unknown seq
	at      cursor
	back    cursor // oldest first: the next posting to read, towards at
	high    uint64 // oldest first: the last posting of the chunk; 0: no chunk is begun
	chunk   []Posting
	passed  record.Record // oldest first: one above the chunk, on the way to it
	placed  bool          // at is where the page begins
	reached bool          // oldest first: the walk has come to Since
	trusted bool          // the place was reached from Top or a mark, not from a cursor, which may be outdated
	page    []Posting
	next    string
	reads   int // left in this step
}

// NewWalk begins a page. The error is ErrCursor, or ErrBelow.
func NewWalk(q Query) (*Walk, error) {
	w := &Walk{q: q, cursors: cursors{q.Key, q.Of, q.Oldest}, reached: q.Since <= 0}
	if q.Cursor == "" {
		return w, nil
	}
	at, err := w.cursors.parse(q.Cursor)
	if err == nil && (at.posting == 0 || at.posting > q.Top.Postings || at.seq > q.Top.State.LastSeq) {
		err = ErrCursor
	}
	if err == nil && at.posting <= q.Floor.Postings {
		err = ErrBelow
	}
	w.at, w.placed = at, true
	return w, err
}

// Step reads about n records and reports whether the page is complete. A broken chain of records
// ends the view in a RowError. It returns ErrCursor if the record of the cursor is another one, as
// after a restore.
func (w *Walk) Step(r store.Reader, n int) (done bool, err error) {
	w.reads = n
	if !w.placed {
		w.place(r)
	}
	if w.q.Oldest {
		return w.forth(r)
	}
	return w.down(r)
}

// Page are the entries, once Step has said that it is whole.
func (w *Walk) Page() []Posting { return w.page }

// Next is the cursor of the page after this one, "" at the end.
func (w *Walk) Next() string { return w.next }

// place finds where the first page begins.
func (w *Walk) place(r store.Reader) {
	w.placed, w.trusted = true, true
	top := cursor{w.q.Top.Postings, w.q.Top.State.LastSeq}
	switch {
	case w.q.Oldest:
		w.at = cursor{posting: max(w.marksBefore(r, w.q.Since)*MarkEvery, w.q.Floor.Postings) + 1}
	case w.q.Until == 0:
		w.at = top
	default:
		w.at = w.mark(r, w.marksBefore(r, w.q.Until)+1)
	}
}

// marksBefore is how many marks are older than a time, or below the horizon.
func (w *Walk) marksBefore(r store.Reader, at int64) uint64 {
	var rec record.Record
	older, end := w.q.Floor.Postings/MarkEvery, w.q.Top.Postings/MarkEvery+1
	for at > 0 && older+1 < end {
		n := older + (end-older)/2
		c := w.mark(r, n)
		w.reads--
		if c.posting == n*MarkEvery && ReadRecord(r, c.seq, &rec) && rec.At < at {
			older = n
		} else {
			end = n
		}
	}
	return older
}

// mark is the posting that mark n points at, or the newest one if there is no such mark.
func (w *Walk) mark(r store.Reader, n uint64) cursor {
	top := cursor{w.q.Top.Postings, w.q.Top.State.LastSeq}
	if n*MarkEvery >= top.posting {
		return top
	}
	seq, known := GetMark(r, MarkKey{w.q.Of, n})
	if !known && w.q.Mark != nil {
		seq, known = w.q.Mark(n)
	}
	if !known {
		return top
	}
	return cursor{n * MarkEvery, seq}
}

// down reads newest first.
func (w *Walk) down(r store.Reader) (done bool, err error) {
	for w.at.posting > w.q.Floor.Postings {
		if len(w.page) == w.q.Limit {
			w.next = w.cursors.text(w.at)
			return true, nil
		}
		if w.reads <= 0 {
			return false, nil
		}
		p := Posting{N: w.at.posting}
		if p.Image, err = w.read(r, &w.at, &p.Record); err != nil {
			return true, err
		}
		if p.Record.At < w.q.Since {
			break
		}
		if w.q.Until == 0 || p.Record.At < w.q.Until {
			w.page = append(w.page, p)
		}
	}
	return true, nil
}

// forth reads oldest first: chunk by chunk, each from the mark at its end backwards.
func (w *Walk) forth(r store.Reader) (done bool, err error) {
	for w.at.posting <= w.q.Top.Postings {
		if len(w.page) == w.q.Limit {
			w.next = w.cursors.text(cursor{posting: w.at.posting})
			return true, nil
		}
		if w.high == 0 {
			w.begin(r)
		}
		for w.back.posting >= w.at.posting {
			if w.reads <= 0 {
				return false, nil
			}
			if w.back.posting > w.high {
				_, err = w.read(r, &w.back, &w.passed)
			} else {
				w.chunk = append(w.chunk, Posting{N: w.back.posting})
				p := &w.chunk[len(w.chunk)-1]
				p.Image, err = w.read(r, &w.back, &p.Record)
			}
			if err != nil {
				return true, err
			}
		}
		if w.deal() {
			break
		}
	}
	return true, nil
}

// begin plans a chunk: up to the next mark and, once the page has begun, no more than its room.
func (w *Walk) begin(r store.Reader) {
	n := (w.at.posting + MarkEvery - 1) / MarkEvery
	w.trusted = true
	w.back = w.mark(r, n)
	w.high = min(n*MarkEvery, w.q.Top.Postings)
	if w.reached {
		w.high = min(w.high, w.at.posting+uint64(w.q.Limit-len(w.page))-1)
	}
}

// deal adds a chunk to the page up to its limit, and reports whether the chunk reaches Until.
func (w *Walk) deal() (end bool) {
	slices.Reverse(w.chunk)
	for _, p := range w.chunk {
		if w.q.Until != 0 && p.Record.At >= w.q.Until {
			return true
		}
		if p.Record.At < w.q.Since {
			continue
		}
		if w.reached = true; len(w.page) == w.q.Limit {
			w.high = p.N - 1
			break
		}
		w.page = append(w.page, p)
	}
	w.at.posting, w.high, w.chunk = w.high+1, 0, w.chunk[:0]
	return false
}

// read reads the posting at c, and moves c to the posting before. It returns the index of the
// balance's image.
func (w *Walk) read(r store.Reader, c *cursor, rec *record.Record) (image int, err error) {
	w.reads--
	known := ReadRecord(r, c.seq, rec)
	image = slices.IndexFunc(
		rec.Images,
		func(im record.Image) bool { return im.Account == w.q.Of.Account && im.Asset == w.q.Of.Asset },
	)
	floor := &w.q.Floor
	if !known || image < 0 || (rec.Images[image].Prev == floor.State.LastSeq) != (c.posting == floor.Postings+1) {
		if !w.trusted {
			return image, ErrCursor
		}
		panic(
			wrong(bJournal, seqKey(c.seq), "it should be posting %d of account %d, asset %d", c.posting, w.q.Of.Account,
				w.q.Of.Asset),
		)
	}
	*c = cursor{c.posting - 1, rec.Images[image].Prev}
	return image, nil
}

// ErrCursor says that a text is not a cursor of this history: of another account, asset or order,
// or of no ledger like this one.
var ErrCursor = errors.New("cursor does not belong to this query: begin without one")

// ErrBelow says that a cursor leads into a closed period.
var ErrBelow = errors.New("cursor leads below the horizon")

// cursor says where a page begins: at which posting, and for one that runs backwards in which
// record it is.
type cursor struct{ posting, seq uint64 }

// cursorSize: version, posting, seq, seal.
const cursorSize = 1 + 8 + 8 + sealSize

// sealSize bytes of hash tie a cursor to its history. They detect invalid cursors; access is
// checked elsewhere.
const sealSize = 8

const cursorVersion = 1

// cursorSeals sets a cursor's seal apart from every other digest.
var cursorSeals = b3.Derive("ronbox ledger cursor v1")

// cursors writes and reads the cursors of one history.
type cursors struct {
	key    StoreKey
	of     StateKey
	oldest bool // the order
}

func (c cursors) text(at cursor) string {
	b := binary.BigEndian.AppendUint64([]byte{cursorVersion}, at.posting)
	b = binary.BigEndian.AppendUint64(b, at.seq)
	return base64.RawURLEncoding.EncodeToString(append(b, c.seal(b)...))
}

func (c cursors) parse(s string) (cursor, error) {
	if len(s) != base64.RawURLEncoding.EncodedLen(cursorSize) {
		return cursor{}, ErrCursor
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil || b[0] != cursorVersion ||
		string(c.seal(b[:cursorSize-sealSize])) != string(b[cursorSize-sealSize:]) {
		return cursor{}, ErrCursor
	}
	return cursor{binary.BigEndian.Uint64(b[1:]), binary.BigEndian.Uint64(b[9:])}, nil
}

func (c cursors) seal(b []byte) []byte {
	order := byte('n')
	if c.oldest {
		order = 'o'
	}
	sum := cursorSeals.Sum(c.key[:], stateKeys().Append(nil, c.of), []byte{order}, b)
	return sum[:sealSize]
}
