package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"

	"github.com/go-json-experiment/json"

	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
)

// maxAudit is the most bytes of what an auditor keeps.
const maxAudit = 128 << 10

// ReadAudit reads into state what an auditor has kept in file; state stays as it is while there is no file. sound reports whether
// what was read is such a state.
func ReadAudit(file string, state any, sound func() bool) error {
	raw, err := ReadFile(file, maxAudit)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, state, json.RejectUnknownMembers(true)); err != nil || !sound() {
		return Fail(ExitFailed, "malformed", "put back a copy of it; another file begins anew and trusts what the node says now", "%s is no state of an audit", file)
	}
	return nil
}

// WriteAudit keeps state in file for the next look.
func WriteAudit(file string, state any) error {
	raw, err := Encode(state)
	if err != nil {
		return err
	}
	return ReplaceFile(file, raw, 0o600)
}

// NoProof tells a node that answers that it has no proof, which is bad, from one that could not be asked.
func NoProof(err error) (bad, other error) {
	p, ok := errors.AsType[*wire.Problem](err)
	if ok && (p.Status == http.StatusBadRequest || p.Status == http.StatusNotFound) && !client.Retryable(err) {
		return fmt.Errorf("the node gives no proof: %w", err), nil
	}
	return nil, err
}

// ShowChecked shows the result of a check, and ends the verb as FoundBad does unless there is no problem.
func (a *App) ShowChecked(doc any, problem, kind string, human func(t Table)) error {
	if err := a.Show(doc, human); err != nil || problem == "" {
		return err
	}
	return a.FoundBad(problem, kind)
}
