package appliance

import (
	"context"
	"crypto/rand"
	"fmt"
	"path/filepath"

	"golang.org/x/mod/sumdb/note"

	"ronbox/engines/registry/record"
)

// devSigner names the one signer of a dev node.
const devSigner = "org:dev#signer"

// devGenesis makes a signer and a log key, and commits a genesis that the signer governs alone.
func (n *Node) devGenesis(ctx context.Context) (payloadB3 string, err error) {
	if err := makeDir(filepath.Dir(n.boot.Path(SignerName))); err != nil {
		return "", err
	}
	key, err := record.NewKey(devSigner, rand.Reader)
	if err != nil {
		return "", fmt.Errorf("signer key: %w", err)
	}
	if err := writePrivate(n.boot.Path(SignerName), key.Bytes()); err != nil {
		return "", err
	}
	logKey, err := makeLogKey(n.boot.Path(LogKeyName), n.boot.Registry.Origin)
	if err != nil {
		return "", err
	}
	now := n.now()
	set := record.SignerSet{
		Epoch: 1, Threshold: 1, ThresholdGov: 1, Signers: []record.Signer{key.Signer(1)}, LogKeys: []string{logKey},
	}
	draft := fmt.Appendf(nil, `{"items":[],"kind":%q,"mode":%q,"schema_version":%q,"signer_set":%s,"version":1}`,
		record.KindGenesis, record.ModeFull, record.SchemaVersion, set.Bytes())
	payload, _, err := record.Complete(draft, record.Base{Origin: n.boot.Registry.Origin}, now)
	if err != nil {
		return "", fmt.Errorf("genesis: %w", err)
	}
	approvals := []record.Approval{key.Sign(payload.B3(), now)}
	done, err := n.registry.Genesis(ctx, self("init"), payload.Bytes(), approvals, "init")
	if err != nil {
		return "", fmt.Errorf("commit genesis: %w", err)
	}
	return done.PayloadB3.String(), nil
}

// makeLogKey draws the key that will sign checkpoints of the log named origin, and gives its public half.
func makeLogKey(path, origin string) (vkey string, err error) {
	skey, vkey, err := note.GenerateKey(rand.Reader, origin)
	if err != nil {
		return "", fmt.Errorf("log key: %w", err)
	}
	return vkey, writePrivate(path, []byte(skey+"\n"))
}
