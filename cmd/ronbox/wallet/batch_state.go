package wallet

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"ronbox/appliance/b3"
	"ronbox/cmd/ronbox/cli"
	"ronbox/engines/ledger/record"
)

// batchState holds the results of the rows of a batch, and is the content of its state file. It is
// an optimization: a row without a result is sent again, and the ledger answers with the first
// outcome. Only refusals are recorded nowhere else.
type batchState struct {
	Version int          `json:"ronbox_batch"`
	Run     string       `json:"run"`   // of --run
	Input   string       `json:"input"` // hash of the operations
	Mode    string       `json:"mode"`
	Rows    int          `json:"rows"`
	Done    []span       `json:"done"`          // rows that are done
	Before  []span       `json:"before"`        // those of them that an earlier run had done, without a state file
	Refused []refusedRow `json:"refused"`       // rows that the node refused for good
	Last    string       `json:"last,omitzero"` // txid of a row that is done
}

// span is a range of row indexes, both ends included.
type span [2]int

// refusedRow is an operation that the node has refused for good.
type refusedRow struct {
	Row    int    `json:"row"` // index in the file's operations
	Line   int    `json:"line"`
	Reason string `json:"reason"`
	Code   string `json:"code,omitzero"` // written by earlier releases, and not used
}

// closed reports whether the node refused r because a closed period has executed it.
func (r *refusedRow) closed() bool { return r.Reason == record.PeriodClosed.String() }

const (
	stateVersion = 3
	keepEvery    = time.Second // minimum interval of writes of the state; it is also written at the end
)

func newBatchState(rows []batchRow, run, mode string) batchState {
	return batchState{
		Version: stateVersion, Run: run, Input: inputDigest(rows), Mode: mode, Rows: len(rows),
		Refused: []refusedRow{}, Before: []span{},
	}
}

// inputDigest returns the hash of the rows in order. It does not depend on the format of the file.
func inputDigest(rows []batchRow) string {
	h := b3.New()
	for i := range rows {
		raw, _ := json.Marshal(rows[i].op, json.Deterministic(true)) // plain text and numbers
		_, _ = h.Write(append(raw, '\n'))
	}
	return h.Sum32().String()
}

// load reads the state of an earlier run from path, and reports whether path has a state. The rows
// of that run must be rows, or the first of them.
func (s *batchState) load(path string, rows []batchRow) (found bool, err error) {
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(raw) == 0 {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	var was batchState
	if bytes.HasPrefix(raw, []byte(`{"ronbox_batch":2,`)) {
		return false, cli.Fail(cli.ExitFailed, "malformed", "finish the batch with the release that began it",
			"%s is the state of an earlier release, whose rows have no references", path)
	}
	err = json.Unmarshal(raw, &was, json.RejectUnknownMembers(true))
	if _, sound := was.settled(); err != nil || was.Version != stateVersion || !sound {
		return false, cli.Fail(cli.ExitFailed, "malformed",
			"if it was the state file, remove it or name another with --state: no row is executed twice",
			"%s is not the state file of a batch", path)
	}
	fits := was.Rows == len(rows) || was.Rows < len(rows) && s.Mode != modeAtomic
	same := fits && was.Run == s.Run && was.Mode == s.Mode && was.Input == inputDigest(rows[:was.Rows])
	switch {
	case same:
		was.Input, was.Rows = s.Input, s.Rows
		*s = was
	case len(was.Done) > 0:
		return false, cli.Fail(cli.ExitFailed, "other_batch",
			"restore the batch file and add rows only at its end, "+
				"or name another state file with --state: an executed row is not executed again",
			"%s is the state file of other operations, of another --run, or of another --atomic", path)
	}
	return same, nil
}

// settled marks the rows that have a result. It returns false if a row has two results or is not in
// the file.
func (s *batchState) settled() (is []bool, sound bool) {
	if s.Rows < 0 || s.Rows > maxBatchRows {
		return nil, false
	}
	is = make([]bool, s.Rows)
	all := slices.Clone(s.Done)
	for _, r := range s.Refused {
		all = append(all, span{r.Row, r.Row})
	}
	for _, p := range slices.Concat(all, s.Before) {
		if p[0] < 0 || p[1] < p[0] || p[1] >= s.Rows {
			return nil, false
		}
	}
	for _, p := range all {
		for i := p[0]; i <= p[1]; i++ {
			if is[i] {
				return nil, false
			}
			is[i] = true
		}
	}
	return is, true
}

// pending returns the rows without a result, in order.
func (s *batchState) pending() (rows []int) {
	settled, _ := s.settled() // was checked by load
	for i, is := range settled {
		if !is {
			rows = append(rows, i)
		}
	}
	return rows
}

// keep replaces the file at path. If path is "", it does nothing.
func (s *batchState) keep(path string) error {
	if path == "" {
		return nil
	}
	raw, err := cli.Encode(s)
	if err == nil {
		err = cli.ReplaceFile(path, raw, 0o600)
	}
	if err != nil {
		return cli.Fail(cli.Classify(err).Code, "state_not_written",
			"free disk space or fix the named cause, then run the same command again",
			"the state file cannot be written: %w", err)
	}
	return nil
}

// addSpans adds ascending rows to spans, and merges adjacent rows.
func addSpans(to []span, rows ...int) []span {
	for _, r := range rows {
		if n := len(to); n > 0 && to[n-1][1] == r-1 {
			to[n-1][1] = r
			continue
		}
		to = append(to, span{r, r})
	}
	return to
}

func count(s []span) (n int) {
	for _, p := range s {
		n += p[1] - p[0] + 1
	}
	return n
}
