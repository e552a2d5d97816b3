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

// maxAudit bounds the state file of an auditor, bytes.
const maxAudit = 128 << 10

// ReadAudit reads the state of an auditor from file. state stays unchanged if there is no file.
// sound reports whether the state is valid.
func ReadAudit(file string, state any, sound func() bool) error {
	raw, err := ReadFile(file, maxAudit)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, state, json.RejectUnknownMembers(true)); err != nil || !sound() {
		return Fail(ExitFailed, "malformed",
			"restore the file from a copy; with another file the audit begins again and trusts the current "+
				"state of the node",
			"%s is not the state file of an audit", file)
	}
	return nil
}

// WriteAudit writes the state of an auditor to file.
func WriteAudit(file string, state any) error {
	raw, err := Encode(state)
	if err != nil {
		return err
	}
	return ReplaceFile(file, raw, 0o600)
}

// NoProof distinguishes a node without a proof, returned as bad, from a node that could not be
// asked, returned as other.
func NoProof(err error) (bad, other error) {
	p, ok := errors.AsType[*wire.Problem](err)
	if ok && (p.Status == http.StatusBadRequest || p.Status == http.StatusNotFound) && !client.Retryable(err) {
		return fmt.Errorf("the node gives no proof: %w", err), nil
	}
	return nil, err
}

// ShowChecked shows the result of a check, and calls FoundBad if there is a problem.
func (a *App) ShowChecked(doc any, problem, kind string, human func(t Table)) error {
	if err := a.Show(doc, human); err != nil || problem == "" {
		return err
	}
	return a.FoundBad(problem, kind)
}
