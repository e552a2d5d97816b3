package registry

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"ronbox/cmd/ronbox/cli"
	"ronbox/engines/registry/record"
	registryapi "ronbox/httpapi/registry"
)

// signerKey is a key with the file it was read from.
type signerKey struct {
	*record.Key
	file string
}

// checkSigner checks that the key is the active one of its signer, whose entry in a set is s if known.
func (k signerKey) checkSigner(s record.Signer, known bool) error {
	switch {
	case !known:
		return cli.Fail(cli.ExitDenied, "unknown_signer", "`ronbox registry signers show` says who may sign", "%s is not in the signer set", k.SignerID)
	case s.Status != record.StatusActive:
		return cli.Fail(cli.ExitDenied, "revoked_key", "sign with an active key", "the key of %s is %s", k.SignerID, s.Status)
	case s.PublicKey != k.Public():
		return cli.Fail(cli.ExitDenied, "unknown_signer", "use the key file of that signer", "the signer set has another public key for %s", k.SignerID)
	}
	return nil
}

// signedSuffix is that of the file beside a key that lists what the key has signed: a line of origin, version, the hash of
// the payload but for its time, and the payload's own.
const signedSuffix = ".signed"

// errSignedBefore is returned where a key has signed another payload for the same version.
var errSignedBefore = errors.New("the key has signed another payload for that version")

// noteSigning writes down, before the key signs it, what p is. It refuses a second payload for one version of one log; the
// same change at another time is no second one. A forced signing is written down too.
func (k signerKey) noteSigning(p *record.Payload, force bool) error {
	path := k.file + signedSuffix
	content := p.ContentB3().String()
	known, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	place := fmt.Sprintf("%s %d ", p.Origin, p.Version)
	for s := bufio.NewScanner(bytes.NewReader(known)); s.Scan(); {
		rest, same := strings.CutPrefix(s.Text(), place)
		if !same {
			continue
		}
		before, payload, _ := strings.Cut(rest, " ")
		if payload == p.B3().String() {
			return nil
		}
		if before != content && !force {
			return fmt.Errorf("%w: %s version %d, payload %s, by %s", errSignedBefore, p.Origin, p.Version, payload, path)
		}
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%s%s %s\n", place, content, p.B3())
	return errors.Join(err, f.Sync(), f.Close())
}

// noteSignings notes p for each key, and says how a refusal is overcome.
func noteSignings(keys []signerKey, p *record.Payload, force bool) error {
	for _, k := range keys {
		err := k.noteSigning(p, force)
		if errors.Is(err, errSignedBefore) {
			return cli.Fail(exitDuplicate, "signed_before", "two payloads for one version let whoever commits choose: sign the second with --force only if the first is void", "%w", err)
		}
		if err != nil {
			return fmt.Errorf("note what %s signs: %w", k.SignerID, err)
		}
	}
	return nil
}

// signWith notes and signs p with each key.
func (a app) signWith(keys []signerKey, p *record.Payload, force bool) ([]registryapi.Approval, error) {
	if err := noteSignings(keys, p, force); err != nil {
		return nil, err
	}
	signed := make([]registryapi.Approval, len(keys))
	for i, k := range keys {
		signed[i] = k.Sign(p.B3(), a.Now())
	}
	return signed, nil
}
