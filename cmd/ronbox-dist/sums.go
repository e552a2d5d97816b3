package main

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"golang.org/x/mod/sumdb/note"
)

// sumsName is the name of the list of digests.
const sumsName = "SHA256SUMS"

// sums returns the digests of the packages in the form of sha256sum, sorted by name.
func sums(packages map[string][]byte) []byte {
	var out []byte
	for _, name := range slices.Sorted(maps.Keys(packages)) {
		out = fmt.Appendf(out, "%x  %s\n", sha256.Sum256(packages[name]), name)
	}
	return out
}

// sign returns text as a signed note (c2sp.org/signed-note). keyFile holds the key, a line
// "PRIVATE+KEY+name+hash+base64".
func sign(keyFile string, text []byte) ([]byte, error) {
	key, err := os.ReadFile(keyFile)
	if err != nil {
		return nil, fmt.Errorf("RONBOX_RELEASE_KEY: %w", err)
	}
	signer, err := note.NewSigner(strings.TrimSpace(string(key)))
	if err != nil {
		return nil, fmt.Errorf("RONBOX_RELEASE_KEY: %s: %w", keyFile, err)
	}
	return note.Sign(&note.Note{Text: string(text)}, signer)
}

// keygen writes a new key to a file that does not exist, and returns its public key.
func keygen(args []string) (public string, err error) {
	if len(args) != 2 {
		return "", errors.New("keygen: want a name, such as that of a domain, and a file")
	}
	secret, public, err := note.GenerateKey(rand.Reader, args[0])
	if err != nil {
		return "", fmt.Errorf("keygen: %w", err)
	}
	f, err := os.OpenFile(args[1], os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", fmt.Errorf("keygen: %w", err)
	}
	_, err = fmt.Fprintln(f, secret)
	return public, errors.Join(err, f.Close())
}
