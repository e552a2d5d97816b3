package server

import (
	"math"
	"testing"
	"time"

	"ronbox/cmd/ronbox/server/tokens"
	nodeapi "ronbox/httpapi/wire/node"
)

// The metrics show the age of the backup and the expiry of tokens and keys. The token of a dev node
// lives for 30 days.
func TestDeadlinesAreShown(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	must(t, r.expiries.Job(r.Expiry).Do(t.Context()))
	now := float64(time.Now().Unix())
	if at := r.metric("auth_token_expiry_seconds"); at < now+devTTL.Seconds()-86400 || at > now+devTTL.Seconds()+60 {
		t.Errorf("the dev token expires at %v, now is %v", at, now)
	}
	if at := r.metric("auth_root_key_due_seconds"); at <= now {
		t.Errorf("the key is due at %v, now is %v", at, now)
	}
	if !math.IsNaN(r.metric("tls_certificate_expiry_seconds")) {
		t.Error("a certificate without TLS")
	}
	up := func() float64 { return r.now().Sub(r.started).Seconds() }
	if least, age := up(), r.metric("backup_age_seconds"); age < least {
		t.Errorf("without a snapshot the age is %v s, the node runs for %v s", age, least)
	}
	_, err := r.Snapshot(t.Context(), tokens.Self("test"), "", nodeapi.SnapshotRequest{Dir: t.TempDir()}, nil)
	must(t, err)
	if age, most := r.metric("backup_age_seconds"), up(); age >= most {
		t.Errorf("the backup is %v s old, and the node runs for %v s", age, most)
	}
	r.halt()
}
