package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func (a *app) tokenCmd() *cobra.Command {
	return group("token", "Make, narrow, read, judge and revoke tokens",
		a.tokenMintCmd(), a.tokenAttenuateCmd(), a.tokenInspectCmd(), a.tokenVerifyCmd(), a.tokenRevokeCmd(), a.tokenListCmd())
}

// newToken is a token a verb has made, or, with --out, where it is.
type newToken struct {
	Token     string    `json:"token,omitzero"`
	TID       string    `json:"tid"`
	ExpiresAt time.Time `json:"expires_at,omitzero"`
	File      string    `json:"file,omitzero"`
}

// handOut prints a token once, or writes it to the file out names, for its owner alone.
func (a *app) handOut(t newToken, out string) error {
	if out != "" {
		if err := writeFile(out, []byte(t.Token+"\n"), 0o600); err != nil {
			return err
		}
		t.Token, t.File = "", out
	}
	a.say("token %s, good until %s", t.TID, orNever(t.ExpiresAt))
	switch {
	case a.flags.json:
		return a.document(t)
	case out != "":
		return a.show(t, func(w table) { w.row("written to", out) })
	}
	return a.raw([]byte(t.Token + "\n")) // with --quiet too: it is what was asked for
}

func orNever(t time.Time) string {
	if t.IsZero() {
		return "its root key is retired"
	}
	return t.UTC().Format(time.RFC3339)
}

// tokenArgument is the token that a verb is about: in a file, "-" for stdin, or without an argument --token-file.
func (a *app) tokenArgument(args []string) (string, error) {
	path := a.flags.tokenFile
	if len(args) == 1 {
		path = args[0]
	}
	switch path {
	case "":
		return "", usage("want a token: a file, --token-file, or - for stdin")
	case "-":
		raw, err := io.ReadAll(io.LimitReader(a.stdin, maxTokenFile))
		if err != nil {
			return "", fmt.Errorf("read stdin: %w", err)
		}
		return strings.TrimSpace(string(raw)), nil
	}
	return readToken(path)
}
