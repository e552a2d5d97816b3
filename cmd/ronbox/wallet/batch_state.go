package wallet

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/go-json-experiment/json"
	"golang.org/x/sys/unix"

	"ronbox/cmd/ronbox/cli"
	walletapi "ronbox/httpapi/wallet"
)

// batchPlan is the first line of a state file: it names the batch.
type batchPlan struct {
	Version int    `json:"ronbox_batch"`
	Name    string `json:"run"`   // of --run
	Input   string `json:"input"` // hash of the operations
	Mode    string `json:"mode"`
	Rows    int    `json:"rows"`
}

// batchStep is each further line: a request that is about to be sent, or the result of one. Every line is on disk before
// anything that follows from it is done, so that a run that is killed goes on with the same requests.
type batchStep struct {
	Plan     *batchPlan        `json:"plan,omitzero"`      // alone: what is sent from here on, rows having been added
	No       int               `json:"no"`                 // of the request, from 0 on
	Rows     []span            `json:"rows,omitempty"`     // about to be sent: its rows
	Nonces   map[string]uint64 `json:"nonces,omitempty"`   // and the first nonce of each payer that leaves it to the verb
	Reopened []span            `json:"reopened,omitempty"` // instead of all this: rows refused before that are to be tried again
	Before   []span            `json:"before,omitempty"`   // or rows that a run has done of which this file did not tell
	Settled  bool              `json:"settled,omitzero"`   // what became of it
	Ledger   *ledgerMark       `json:"ledger,omitzero"`    // the newest record that was known then
	Refused  []refusedRow      `json:"refused,omitempty"`
	Again    []span            `json:"again,omitempty"` // rows whose nonce a refusal before them has made wrong
	Known    []span            `json:"known,omitempty"` // those of them that the node did before, at least in part, with other nonces
}

// done counts the rows of a request that its end tells to be done.
func (s *batchStep) done(rows []int) int { return len(rows) - count(s.Again) - len(s.Refused) }

// span is rows from one index to another, both included.
type span [2]int

// newRefusedRow is an operation that the node has refused for good.
type refusedRow struct {
	Row    int    `json:"row"` // index in the file's operations
	Line   int    `json:"line"`
	Code   string `json:"code"`
	Reason string `json:"reason"`
}

// stateFile keeps the steps of a batch in a file. A nil one keeps nothing.
type stateFile struct {
	f    *os.File
	path string
	sync func() error
}

const stateVersion = 2

const maxStateLine = 16 << 20 // a request's refusals

// openState opens or makes the state at path and gives the steps that are in it. It holds the file until close, so
// that no two runs send one file.
func openState(path string, plan batchPlan, rows []batchRow) (*stateFile, []batchStep, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, nil, err
	}
	s := &stateFile{f, path, f.Sync}
	steps, err := s.open(plan, rows)
	if err != nil {
		_ = f.Close() // nothing was written that matters
		return nil, nil, err
	}
	return s, steps, nil
}

func (s *stateFile) open(plan batchPlan, rows []batchRow) ([]batchStep, error) {
	if err := unix.Flock(int(s.f.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		return nil, cli.Fail(cli.ExitLocked, "locked", "wait for it to end", "another process is sending the batch of %s", s.path)
	} else if err != nil {
		return nil, fmt.Errorf("lock %s: %w", s.path, err)
	}
	if err := s.checkPath(); err != nil {
		return nil, err
	}
	lines, torn, whole, err := stateLines(s.f)
	if err != nil {
		return nil, cli.ReadError(s.path, err)
	}
	first, err := cli.Encode(plan)
	if err != nil {
		return nil, err
	}
	if len(lines) == 0 && !bytes.HasPrefix(first, torn) { // it is somebody's file
		return nil, notAState(s.path)
	}
	var steps []batchStep
	var was batchPlan
	if len(lines) > 0 {
		if was, steps, err = parseState(s.path, lines, plan, rows); isOtherBatch(err) && nothingDone(steps) {
			lines, steps, whole = nil, nil, 0
		} else if err != nil {
			return nil, err
		}
	}
	if err := s.f.Truncate(whole); err != nil { // a line that a crash has cut was never acted on
		return nil, err
	}
	if _, err := s.f.Seek(whole, io.SeekStart); err != nil {
		return nil, err
	}
	if len(lines) == 0 {
		return nil, errors.Join(s.append(first), syncDir(s.path))
	}
	if was != plan {
		err = s.write(batchStep{Plan: &plan})
	}
	return steps, err
}

// checkPath checks that the state is a regular file, and still the one at its path: a second run would not see one that was
// taken away, and would do everything again.
func (s *stateFile) checkPath() error {
	mine, err := s.f.Stat()
	if err != nil {
		return err
	}
	if !mine.Mode().IsRegular() {
		return cli.Fail(cli.ExitFailed, "malformed", "name a file: it must outlive a kill", "%s is no regular file and keeps no state", s.path)
	}
	if at, err := os.Stat(s.path); err != nil || !os.SameFile(mine, at) {
		return cli.Fail(cli.ExitFailed, "state_gone", "put it back if you can, then run the same command again: without it what was done is looked for on the node",
			"%s was taken away or replaced while its batch is sent", s.path)
	}
	return nil
}

// syncDir makes the name of a new file last.
func syncDir(path string) error {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// stateLines returns the whole lines of f, the end of the last one, and the torn line behind it.
func stateLines(f *os.File) (lines [][]byte, torn []byte, whole int64, err error) {
	r := bufio.NewReader(f)
	for {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return lines, line, whole, nil
		}
		if err != nil || len(line) > maxStateLine {
			return nil, nil, 0, errors.Join(err, errNoState)
		}
		lines, whole = append(lines, line), whole+int64(len(line))
	}
}

var errNoState = errors.New("not the state of a batch")

func notAState(path string) error {
	return cli.Fail(cli.ExitFailed, "malformed",
		"if it was the state, put back a copy of it; without one, or if it never was, name another with --state: rows that were done are looked for on the node",
		"%s: %w", path, errNoState)
}

// otherLayout is the state of another version of this verb, whose keys this one does not know.
func otherLayout(path string, layout int) error {
	return cli.Fail(cli.ExitFailed, "malformed", "finish it with the program that began it",
		"%s is a state of layout %d, this program's is %d: what was done under it cannot be found by this program", path, layout, stateVersion)
}

// damagedState is the failure to read on in a state file. The node still knows what was done.
func damagedState(path string, err error) error {
	return cli.Fail(cli.ExitFailed, "malformed", "put back a copy of it; without one, name another with --state: rows that were done are looked for on the node",
		"%s is damaged: %w", path, err)
}

// parseState reads the lines of the state at path. They must be of plan's rows, or of the rows that these begin with.
func parseState(path string, lines [][]byte, plan batchPlan, rows []batchRow) (was batchPlan, steps []batchStep, err error) {
	var layout struct {
		Version int `json:"ronbox_batch"`
	}
	if err := json.Unmarshal(lines[0], &layout); err == nil && layout.Version > 0 && layout.Version != plan.Version {
		return was, nil, otherLayout(path, layout.Version)
	}
	if err := json.Unmarshal(lines[0], &was, json.RejectUnknownMembers(true)); err != nil || was.Version != plan.Version {
		return was, nil, notAState(path)
	}
	steps = make([]batchStep, len(lines)-1)
	for i, line := range lines[1:] {
		if err := json.Unmarshal(bytes.TrimSpace(line), &steps[i], json.RejectUnknownMembers(true)); err != nil {
			return was, nil, damagedState(path, fmt.Errorf("line %d: %w", i+2, errNoState))
		}
		if steps[i].Plan != nil {
			was = *steps[i].Plan
		}
	}
	if was != plan && !was.isExtendedBy(plan, rows) {
		return was, steps, cli.Fail(cli.ExitFailed, otherBatch,
			"put the file back as it was and add rows at its end only; or name another file with --state: rows that say what they said when they were done are found and not done again, any other row is done",
			"%s is the state of other operations, of another --run or of another --atomic", path)
	}
	return was, steps, nil
}

// isExtendedBy reports whether the rows of now begin with those of the plan.
func (p batchPlan) isExtendedBy(now batchPlan, rows []batchRow) bool {
	if p.Rows > len(rows) || p.Mode != modeIndependent {
		return false
	}
	now.Rows, now.Input = p.Rows, inputDigest(rows[:p.Rows])
	return p == now
}

const otherBatch = "other_batch"

func isOtherBatch(err error) bool { return err != nil && cli.Classify(err).Reason == otherBatch }

// nothingDone reports whether it is certain that no row of a batch was done: the state may then be used for a corrected file.
func nothingDone(steps []batchStep) bool {
	left := 0
	for i := range steps {
		s := &steps[i]
		if s.Before != nil || s.Known != nil {
			return false
		}
		if !s.Settled {
			left += count(s.Rows)
			continue
		}
		if left -= count(s.Again) + len(s.Refused); left != 0 {
			return false
		}
	}
	return left <= 0
}

func count(s []span) (n int) {
	for _, p := range s {
		n += p[1] - p[0] + 1
	}
	return n
}

// write puts one line on disk.
func (s *stateFile) write(doc any) error {
	if s == nil {
		return nil
	}
	raw, err := cli.Encode(doc)
	if err != nil {
		return err
	}
	if err := s.checkPath(); err != nil {
		return err
	}
	return s.append(raw)
}

func (s *stateFile) append(raw []byte) error {
	_, err := s.f.Write(raw)
	if err == nil {
		err = s.sync()
	}
	if err != nil {
		return cli.Fail(cli.Classify(err).Code, "state_not_written", "make room for it or mend what is named, then run the same command again",
			"what was done cannot be kept: %w", err)
	}
	return nil
}

func (s *stateFile) close() {
	if s != nil {
		_ = s.f.Close() // every line is synced
	}
}

// toSpans puts ascending indexes together.
func toSpans(rows []int) []span {
	var out []span
	for _, r := range rows {
		if n := len(out); n > 0 && out[n-1][1] == r-1 {
			out[n-1][1] = r
			continue
		}
		out = append(out, span{r, r})
	}
	return out
}

// expandSpans is the inverse of toSpans. Spans that do not ascend, or reach past the n rows, are an error.
func expandSpans(s []span, n int) ([]int, error) {
	var out []int
	for i, p := range s {
		if p[0] < 0 || p[1] < p[0] || p[1] >= n || i > 0 && p[0] <= s[i-1][1] {
			return nil, fmt.Errorf("%w: rows %d to %d of %d", errNoState, p[0], p[1], n)
		}
		for r := p[0]; r <= p[1]; r++ {
			out = append(out, r)
		}
	}
	return out, nil
}

// isSubset reports whether every row is one of those in all, which ascend.
func isSubset(rows, there []int) bool {
	return !slices.ContainsFunc(rows, func(i int) bool {
		_, is := slices.BinarySearch(there, i)
		return !is
	})
}

// batchMode is how a batch is done.
const (
	modeAtomic      = "atomic"
	modeIndependent = "independent"
)

// newRefusedRow makes of a batch's answer what the state keeps.
func newRefusedRow(row int, line int, e *walletapi.BatchError) refusedRow {
	return refusedRow{Row: row, Line: line, Code: e.Code, Reason: e.Reason}
}
