package lverify

import (
	"errors"
	"fmt"

	"ronbox/engines/ledger/record"
)

// Options are the options of a check.
type Options struct {
	// From is the first batch to check; 0 and 1 are all that are not closed, which alone checks the
	// derived tables too.
	From uint64
	// Progress, unless nil, is told now and then how many of how many records were looked at. A
	// whole check looks at them twice.
	Progress func(done, total uint64)
	// Known, unless it is zero, is the log of batch roots as it was known before the check. Files
	// of periods must lead to it.
	Known record.LogHead

	rows int // that a command of an import or a rebuild writes at most; 0 is sliceKeys
}

// sliceKeys is how many rows a command writes at most, but for a batch that has more.
const sliceKeys = 10_000

func (o *Options) slice() int {
	if o.rows > 0 {
		return o.rows
	}
	return sliceKeys
}

// maxFindings is after how many findings a check ends: more would say nothing new.
const maxFindings = 20

// Report is the result of a check. OK means that the whole requested range is sound.
type Report struct {
	OK       bool        `json:"ok"`
	Whole    bool        `json:"whole"`                   // from the first record that is not closed, with the derived tables
	FromSeq  uint64      `json:"from_seq,omitzero"`       // first record of the range, 0 for the first of all
	Periods  uint64      `json:"closed_periods,omitzero"` // before the first record of the file
	Head     record.Head `json:"head"`                    // as recomputed; a check of the newest batches alone has no root of the log
	Records  uint64      `json:"records"`
	Batches  uint64      `json:"batches"`
	Accounts uint64      `json:"accounts"`
	Assets   uint64      `json:"assets"`
	Holds    uint64      `json:"open_holds"`
	Keys     uint64      `json:"idempotency_keys"` // in sealed runs
	Findings []Finding   `json:"findings,omitzero"`
}

// Finding is one thing found wrong.
type Finding struct {
	Where  string `json:"where"`           // journal, batches, head, horizon, sums, or the table
	Seq    uint64 `json:"seq,omitzero"`    // of the record, 0 if it is none's
	Batch  uint64 `json:"batch,omitzero"`  // likewise
	Detail string `json:"detail,omitzero"` // what differs
}

func (f Finding) Error() string {
	switch {
	case f.Seq != 0:
		return fmt.Sprintf("%s: record %d: %s", f.Where, f.Seq, f.Detail)
	case f.Batch != 0:
		return fmt.Sprintf("%s: batch %d: %s", f.Where, f.Batch, f.Detail)
	}
	return f.Where + ": " + f.Detail
}

// Err is the findings as one error, nil if there are none.
func (r *Report) Err() error {
	errs := make([]error, len(r.Findings))
	for i, f := range r.Findings {
		errs[i] = f
	}
	return errors.Join(errs...)
}

// begins notes the first record of the range.
func (r *Report) begins(seq uint64) {
	if seq > 1 {
		r.FromSeq = seq
	}
}

// found notes a finding.
func (r *Report) found(f Finding) {
	if len(r.Findings) < maxFindings {
		r.Findings = append(r.Findings, f)
	}
}

// full reports whether the check has its most findings.
func (r *Report) full() bool { return len(r.Findings) >= maxFindings }
