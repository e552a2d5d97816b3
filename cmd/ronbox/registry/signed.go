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
	registryapi "ronbox/httpapi/wire/registry"
)

// signerKey is a key with its file.
type signerKey struct {
	*record.Key
	file string
}

// checkSigner checks that the key is the active one of its signer. s is the entry of the signer in
// a set, if known.
func (k signerKey) checkSigner(s record.Signer, known bool) error {
	switch {
	case !known:
		return cli.Fail(cli.ExitDenied, "unknown_signer", "`ronbox registry signers show` lists the signers",
			"%s is not in the signer set", k.SignerID)
	case s.Status != record.StatusActive:
		return cli.Fail(cli.ExitDenied, "revoked_key", "sign with an active key", "the key of %s is %s", k.SignerID,
			s.Status)
	case s.PublicKey != k.Public():
		return cli.Fail(cli.ExitDenied, "unknown_signer", "use the key file of that signer",
			"the signer set has another public key for %s", k.SignerID)
	}
	return nil
}

// signedSuffix is the suffix of the file beside a key that lists its signatures, a line each:
// origin, version, hash of the payload without its time, hash of the payload.
const signedSuffix = ".signed"

// errSignedBefore is returned if a key has signed another payload for the same version.
var errSignedBefore = errors.New("the key has signed another payload for that version")

// noteSigning records p before the key signs it. It refuses a second payload for one version of one
// log. The same change at another time is not a second one. A forced signature is recorded too.
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
			return fmt.Errorf("%w: %s version %d, payload %s, by %s", errSignedBefore, p.Origin, p.Version, payload,
				path)
		}
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%s%s %s\n", place, content, p.B3())
	return errors.Join(err, f.Sync(), f.Close())
}

// noteSignings records p for each key, and advises how to overcome a refusal.
func noteSignings(keys []signerKey, p *record.Payload, force bool) error {
	for _, k := range keys {
		err := k.noteSigning(p, force)
		if errors.Is(err, errSignedBefore) {
			return cli.Fail(registryapi.ExitDuplicate, "signed_before",
				"two signed payloads for one version leave the choice to the committer: "+
					"sign the second with --force only if the first is void",
				"%w", err)
		}
		if err != nil {
			return fmt.Errorf("record the signature of %s: %w", k.SignerID, err)
		}
	}
	return nil
}

// signWith records and signs p with each key.
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
