package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json"

	"ronbox/appliance/b3"
	"ronbox/engines"
)

// Statement says what a closed period holds and what the ledger was after it. Its text is stored,
// listed and copied; its digest is in the OpClose that closed the period, and in the statement of
// the next period.
type Statement struct {
	Period     uint64      // from 1 on
	Prev       b3.Digest   // of the statement before, zero for the first
	FromSeq    uint64      // first record
	ToSeq      uint64      // last record
	FromBatch  uint64      // first batch
	ToBatch    uint64      // last batch
	FromAt     int64       // of the first batch, Unix ns
	ToAt       int64       // of the last batch, Unix ns
	LogRoot    b3.Digest   // of the log of batch roots, as of ToBatch
	LastRoot   b3.Digest   // of the batch ToBatch
	Peaks      []b3.Digest // roots of the full subtrees of that log, the largest first
	Accounts   uint64      // opened so far: their refs are 1 to this
	Assets     uint32      // declared so far: their refs are 1 to this
	HoldsOpen  uint64      // after ToSeq
	NamesRoot  b3.Digest   // of the log of names, as of ToSeq
	StateRoot  b3.Digest   // of the state after ToSeq
	References uint64      // bound in the period
}

// MaxStatement is the longest text of a statement in bytes. 40 peaks take 2,760 of them.
const MaxStatement = 4 << 10

// maxPeaks is the largest number of peaks: a log of 2^40 batch roots, which has as many at most, is
// longer than a file can be.
const maxPeaks = 40

const statementFormat = "ronbox-ledger-statement-v1"

// statementWire is the JSON of a statement, in the order of its members.
type statementWire struct {
	Format     string      `json:"format"`
	Period     uint64      `json:"period"`
	Prev       b3.Digest   `json:"prev"`
	FromSeq    uint64      `json:"from_seq"`
	ToSeq      uint64      `json:"to_seq"`
	FromBatch  uint64      `json:"from_batch"`
	ToBatch    uint64      `json:"to_batch"`
	FromAt     int64       `json:"from_at"`
	ToAt       int64       `json:"to_at"`
	Records    uint64      `json:"records"`
	LogRoot    b3.Digest   `json:"log_root"`
	LastRoot   b3.Digest   `json:"last_root"`
	Peaks      []b3.Digest `json:"peaks"`
	Accounts   uint64      `json:"accounts"`
	Assets     uint32      `json:"assets"`
	HoldsOpen  uint64      `json:"holds_open"`
	NamesRoot  b3.Digest   `json:"names_root"`
	StateRoot  b3.Digest   `json:"state_root"`
	References uint64      `json:"references"`
}

// Records returns the number of records of the period.
func (s *Statement) Records() uint64 { return s.ToSeq - s.FromSeq + 1 }

// Head returns where the ledger stood after the period.
func (s *Statement) Head() Head { return Head{s.ToBatch, s.LogRoot, s.LastRoot, s.ToSeq} }

// Text returns the one text of s.
func (s *Statement) Text() string {
	text, err := json.Marshal(statementWire{
		Format:     statementFormat,
		Period:     s.Period,
		Prev:       s.Prev,
		FromSeq:    s.FromSeq,
		ToSeq:      s.ToSeq,
		FromBatch:  s.FromBatch,
		ToBatch:    s.ToBatch,
		FromAt:     s.FromAt,
		ToAt:       s.ToAt,
		Records:    s.Records(),
		LogRoot:    s.LogRoot,
		LastRoot:   s.LastRoot,
		Peaks:      s.Peaks,
		Accounts:   s.Accounts,
		Assets:     s.Assets,
		HoldsOpen:  s.HoldsOpen,
		NamesRoot:  s.NamesRoot,
		StateRoot:  s.StateRoot,
		References: s.References,
	})
	if err != nil {
		panic("record: the text of a statement: " + err.Error()) // it has only numbers and digests
	}
	return string(text)
}

// Digest returns the digest of the text of s.
func (s *Statement) Digest() b3.Digest { return b3.Sum([]byte(s.Text())) }

var errStatement = errors.New("its numbers do not follow each other")

// ParseStatement reads what Text wrote, with a *FormatError for any other text.
func ParseStatement(text string) (Statement, error) {
	s, err := parseStatement(text)
	if err != nil {
		return Statement{}, &FormatError{"statement of a period", err}
	}
	return s, nil
}

func parseStatement(text string) (Statement, error) {
	if len(text) > MaxStatement {
		return Statement{}, errLength
	}
	var w statementWire
	if err := json.Unmarshal([]byte(text), &w, json.RejectUnknownMembers(true)); err != nil {
		return Statement{}, err
	}
	if w.Format != statementFormat {
		return Statement{}, errFormat
	}
	s := Statement{
		Period:     w.Period,
		Prev:       w.Prev,
		FromSeq:    w.FromSeq,
		ToSeq:      w.ToSeq,
		FromBatch:  w.FromBatch,
		ToBatch:    w.ToBatch,
		FromAt:     w.FromAt,
		ToAt:       w.ToAt,
		LogRoot:    w.LogRoot,
		LastRoot:   w.LastRoot,
		Peaks:      w.Peaks,
		Accounts:   w.Accounts,
		Assets:     w.Assets,
		HoldsOpen:  w.HoldsOpen,
		NamesRoot:  w.NamesRoot,
		StateRoot:  w.StateRoot,
		References: w.References,
	}
	if err := s.check(); err != nil {
		return Statement{}, err
	}
	if s.Text() != text {
		return Statement{}, errForm
	}
	return s, nil
}

// check returns an error if s cannot be the statement of a period.
func (s *Statement) check() error {
	first := s.Period == 1
	switch {
	case s.Period == 0, s.FromSeq == 0, s.ToSeq < s.FromSeq, s.FromBatch == 0, s.ToBatch < s.FromBatch:
		return errStatement
	case s.FromAt < 0, s.ToAt < s.FromAt, s.ToBatch-s.FromBatch > s.ToSeq-s.FromSeq:
		return errStatement
	case first != s.Prev.IsZero(), first != (s.FromSeq == 1), first != (s.FromBatch == 1):
		return errStatement
	case len(s.Peaks) == 0, len(s.Peaks) > maxPeaks, slices.ContainsFunc(s.Peaks, b3.Digest.IsZero):
		return errStatement
	}
	return nil
}

// Follows returns an error unless s is the statement of the period after that of prev. The period
// before the first one has the zero Statement.
func (s *Statement) Follows(prev *Statement) error {
	var digest b3.Digest
	if prev.Period != 0 {
		digest = prev.Digest()
	}
	if s.Period != prev.Period+1 || s.FromSeq != prev.ToSeq+1 || s.FromBatch != prev.ToBatch+1 || s.Prev != digest {
		return fmt.Errorf("period %d with records from %d on does not follow period %d, which ends with record %d",
			s.Period, s.FromSeq, prev.Period, prev.ToSeq)
	}
	if s.FromAt <= prev.ToAt && prev.Period != 0 || s.Accounts < prev.Accounts || s.Assets < prev.Assets {
		return fmt.Errorf("period %d: %w", s.Period, errStatement)
	}
	return nil
}

// closes reports whether r has what an OpClose has, and nothing else.
func (r *Record) closes() bool {
	hi, period := r.Amount.Parts()
	var key [16]byte
	binary.BigEndian.PutUint64(key[8:], period)
	return hi == 0 && period != 0 && r.Dedupe.Kind == DedupeOnce && r.Dedupe.Key == key &&
		r.Dedupe.Fingerprint != [32]byte{} && r.From == 0 && r.To == 0 && r.Asset == 0 && r.Hold == 0 && r.Nonce == 0 &&
		r.Guard == (Guard{}) && len(r.Images) == 0
}

// NewClose returns an OpClose of the period of s. Its place in the journal is not set.
func NewClose(s *Statement) Record {
	r := Record{Op: OpClose, Amount: engines.AmountOf(0, s.Period)}
	r.Dedupe = Dedupe{Kind: DedupeOnce, Fingerprint: s.Digest()}
	binary.BigEndian.PutUint64(r.Dedupe.Key[8:], s.Period)
	return r
}
