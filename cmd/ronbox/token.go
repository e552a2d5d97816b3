package main

import (
	"cmp"
	"io"
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

// handOut prints the token that made gives once, or writes it to the file out names, for its owner alone. The file is
// begun before, so that no token is made that nobody gets.
func (a *app) handOut(out string, made func() (newToken, error)) (err error) {
	var t newToken
	if out == "" {
		t, err = made()
	} else {
		err = produceFile(out, 0o600, func(w io.Writer) (err error) {
			if t, err = made(); err != nil {
				return err
			}
			_, err = io.WriteString(w, t.Token+"\n")
			return err
		})
		t.Token, t.File = "", out
	}
	if err != nil {
		return err
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

// tokenArgument is the token that a verb is about: in a file, "-" for stdin, or without an argument --token-file. What
// holds none ends with the code bad.
func (a *app) tokenArgument(args []string, bad int) (string, error) {
	path := a.flags.tokenFile
	if len(args) == 1 {
		path = args[0]
	}
	if path == "" {
		return "", usage("want a token: a file, --token-file, or - for stdin")
	}
	raw, err := a.readInput(path, maxTokenFile)
	if err != nil {
		return "", err
	}
	return asToken(cmp.Or(map[string]string{"-": "stdin"}[path], path), raw, bad)
}
