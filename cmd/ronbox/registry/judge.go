package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/mod/sumdb/tlog"

	"ronbox/appliance/b3"
	"ronbox/appliance/unit"
	"ronbox/cmd/ronbox/cli"
	"ronbox/engines/registry/checkpoint"
	"ronbox/engines/registry/logtree"
	"ronbox/engines/registry/record"
	"ronbox/engines/registry/rverify"
	registryapi "ronbox/httpapi/wire/registry"
)

const (
	// signedPolicy is the value of --policy without a file: the policy in the signer set in force.
	signedPolicy = "signed"
	// maxPolicyFile bounds a policy, bytes.
	maxPolicyFile = 64 << 10
	// maxAhead is how far the time of a checkpoint may lie ahead of this clock.
	maxAhead = 5 * time.Minute
)

// judgeFlags are the flags that select acceptable checkpoints.
type judgeFlags struct {
	policy string
	maxAge time.Duration
}

func (f *judgeFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.policy, "policy", "",
		"demand a checkpoint that meets the witness policy of `FILE`, or without one the signed policy of the log")
	fl.Lookup("policy").NoOptDefVal = signedPolicy
	fl.DurationVar(&f.maxAge, "max-age", 0, "longest `time` since the newest checkpoint was signed (default: any)")
}

// asked reports whether checkpoints are to be judged.
func (f *judgeFlags) asked() bool { return f.policy != "" || f.maxAge != 0 }

// split returns the n arguments of the verb and the file of --policy FILE: pflag accepts an
// optional value only after "=". The file follows the arguments of the verb, or precedes them if
// the last one is not a file.
func (f *judgeFlags) split(args []string, n int) (own []string, file string) {
	if f.policy != signedPolicy || len(args) != n+1 {
		return args, ""
	}
	at := n
	if _, err := os.Stat(args[n]); err != nil {
		at = 0
	}
	return slices.Delete(slices.Clone(args), at, at+1), args[at]
}

// wants checks that the verb has n arguments of its own.
func (f *judgeFlags) wants(n int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		own, _ := f.split(args, n)
		return cli.Exactly(n, what)(cmd, own)
	}
}

// take sets the policy file and returns the n arguments of the verb.
func (f *judgeFlags) take(args []string, n int) []string {
	own, file := f.split(args, n)
	f.policy = cmp.Or(file, f.policy)
	return own
}

// checkpointFault is the error of a checkpoint that is not acceptable. Kind is the reason for
// scripts.
type checkpointFault struct {
	kind   rverify.Kind
	detail string
}

func (f *checkpointFault) Error() string { return f.detail }

// code returns the exit code of the fault.
func (f *checkpointFault) code() int {
	if f.kind == rverify.KindTooOld {
		return exitTooOld
	}
	return registryapi.ExitQuorum
}

// failure returns the fault as the failure of a verb.
func (f *checkpointFault) failure() error {
	next := "a new version takes up to a minute; " +
		"`ronbox registry log highwater show` on the node names the witnesses that object"
	if f.kind == rverify.KindTooOld {
		next = "ask another reader of the log for its newest checkpoint: the node may be cut off, or show an old state"
	}
	return cli.Fail(f.code(), string(f.kind), next, "%w", f)
}

// judge decides which checkpoints are acceptable.
type judge struct {
	policy *checkpoint.Policy // nil: any
	maxAge time.Duration      // 0: any
	now    time.Time
}

// newJudge reads the policy: a file, or the signed one, which signed returns.
func (a app) newJudge(f judgeFlags, signed func() (string, error)) (judge, error) {
	return newJudge(f, a.Now(), signed)
}

func newJudge(f judgeFlags, now time.Time, signed func() (string, error)) (j judge, err error) {
	j = judge{maxAge: f.maxAge, now: now}
	if f.maxAge < 0 {
		return j, cli.Usage("--max-age %s: want a time above 0", f.maxAge)
	}
	if f.policy == "" {
		return j, nil
	}
	var text string
	if f.policy == signedPolicy {
		text, err = signed()
	} else {
		var raw []byte
		raw, err = cli.ReadFile(f.policy, maxPolicyFile)
		text = string(raw)
	}
	if err != nil {
		return j, err
	}
	if f.policy == signedPolicy && text == "" {
		return j, unwitnessed("the signer set in force names no witness policy")
	}
	p, err := checkpoint.ReadPolicy(text)
	switch {
	case err == nil:
		j.policy = &p
		return j, nil
	case f.policy == signedPolicy:
		return j, unwitnessed("the signed witness policy: %v", err)
	}
	return j, cli.Fail(cli.ExitFailed, "malformed", "see https://c2sp.org/tlog-policy", "--policy %s: %w", f.policy,
		err)
}

// pick returns the newest checkpoint of all, which has the newest first, that covers size versions
// and meets the policy. It returns a *checkpointFault if there is no such checkpoint or if it is
// too old.
func (j judge) pick(all []checkpoint.Signed, size uint64) (s checkpoint.Signed, err error) {
	met := slices.IndexFunc(all, func(s checkpoint.Signed) bool { return j.policy == nil || j.policy.Cosigned(s.Note) })
	switch {
	case met < 0 && j.policy != nil:
		return s, unwitnessed("no checkpoint has the cosignatures that the witness policy demands")
	case met < 0:
		return s, tooOld("the log has no checkpoint")
	case all[met].Size < size && j.policy != nil:
		return s, unwitnessed("no checkpoint over version %d has the cosignatures that the witness policy demands; "+
			"the newest that has them is of %d versions", size, all[met].Size)
	case all[met].Size < size:
		return s, tooOld("no checkpoint covers version %d; the newest is of %d versions", size, all[met].Size)
	}
	return all[met], j.checkAge(all[met])
}

func unwitnessed(format string, args ...any) error {
	return &checkpointFault{rverify.KindWitness, fmt.Sprintf(format, args...)}
}

func tooOld(format string, args ...any) error {
	return &checkpointFault{rverify.KindTooOld, fmt.Sprintf(format, args...)}
}

func (j judge) checkAge(s checkpoint.Signed) error {
	age, at := j.now.Sub(s.At), cli.FormatTime(s.At)
	switch {
	case j.maxAge == 0:
		return nil
	case s.At.IsZero():
		return tooOld("the checkpoint of %d versions has no time of signature", s.Size)
	case age < -maxAhead:
		return tooOld("the checkpoint of %d versions was signed at %s, ahead of this clock", s.Size, at)
	case age > j.maxAge:
		return tooOld("the checkpoint of %d versions was signed at %s, %s ago; --max-age is %s", s.Size, at,
			unit.Short(age), unit.Short(j.maxAge))
	}
	return nil
}

// judgeLog judges the newest checkpoint over a whole log.
func (a app) judgeLog(f judgeFlags, r rverify.LogReader, t rverify.TreeReader, size uint64) (checkpoint.Signed, error) {
	j, err := a.newJudge(f, func() (string, error) {
		set, err := rverify.SignersInForce(r)
		if err != nil || set == nil {
			return "", err
		}
		return set.WitnessPolicy, nil
	})
	if err != nil {
		return checkpoint.Signed{}, err
	}
	all, err := rverify.Checkpoints(r, t)
	if err != nil {
		return checkpoint.Signed{}, err
	}
	return j.pick(all, size)
}

// checkedNode is the part of registryapi.Client that reads checkpoints and the log under them.
type checkedNode interface {
	Checkpoint(ctx context.Context) ([]byte, error)
	Checkpoints(ctx context.Context, before uint64) (registryapi.CheckpointList, error)
	Inclusion(ctx context.Context, v, size uint64) (registryapi.InclusionProof, error)
	Entry(ctx context.Context, v uint64) ([]byte, error)
	Payload(ctx context.Context, v uint64) ([]byte, error)
	Signers(ctx context.Context, epoch uint64) (registryapi.Signers, error)
}

// nodeCheckpoints reads the checkpoints of a node that one of the keys has signed, the newest
// first: the latest and a page of archived ones.
func nodeCheckpoints(ctx context.Context, node checkedNode, keys checkpoint.Keys) (all []checkpoint.Signed, err error) {
	latest, err := node.Checkpoint(ctx)
	if err != nil {
		return nil, err
	}
	list, err := node.Checkpoints(ctx, 0)
	if err != nil {
		return nil, err
	}
	for _, raw := range append([]string{string(latest)}, list.Notes...) {
		if s, err := keys.Open([]byte(raw)); err == nil {
			all = append(all, s)
		}
	}
	return all, nil
}

// provenPayload reads the payload of a version and checks that it is in the log under checkpoint s.
func provenPayload(ctx context.Context, node checkedNode, v uint64, s checkpoint.Signed) (*record.Payload, error) {
	proof, err := node.Inclusion(ctx, v, s.Size)
	if err != nil {
		return nil, err
	}
	raw, err := node.Entry(ctx, v)
	if err != nil {
		return nil, err
	}
	if err := tlog.CheckRecord(proof.Hashes, int64(s.Size), s.Root, int64(v-1), logtree.Leaf(raw)); err != nil {
		return nil, inconsistent("the entry is not version %d under the checkpoint of %d: %w", v, s.Size, err)
	}
	entry, err := record.ParseEntry(raw)
	if err != nil || entry.Version != v {
		return nil, inconsistent("the entry is not that of version %d (%v)", v, err)
	}
	if raw, err = node.Payload(ctx, v); err != nil {
		return nil, err
	}
	p, err := record.ParsePayload(raw)
	if err != nil || b3.Sum(raw) != entry.PayloadB3 {
		return nil, inconsistent("the payload of version %d is not the one that its entry names (%v)", v, err)
	}
	return p, nil
}

// provenPolicy reads the witness policy that is in force after the last version under s.
func provenPolicy(ctx context.Context, node checkedNode, s checkpoint.Signed) (string, error) {
	p, err := provenPayload(ctx, node, s.Size, s)
	if err != nil {
		return "", err
	}
	signers, err := node.Signers(ctx, 0)
	if err != nil {
		return "", err
	}
	set, err := record.ParseSignerSet(signers.SignerSet)
	if err != nil || set.B3() != p.SignerSetB3 {
		return "", inconsistent("the signer set is not the one that version %d names (%v)", s.Size, err)
	}
	return set.WitnessPolicy, nil
}

// judgeNode judges the newest checkpoint of a node over size versions, 0 for the size of the
// latest.
func (a app) judgeNode(ctx context.Context, f judgeFlags, node checkedNode, keys checkpoint.Keys,
	size uint64) (s checkpoint.Signed, err error) {
	all, err := nodeCheckpoints(ctx, node, keys)
	if err != nil {
		return s, err
	}
	if len(all) == 0 {
		return s, inconsistent("no checkpoint is signed by a log key that is trusted")
	}
	if size == 0 {
		size = all[0].Size
	}
	j, err := a.newJudge(f, func() (string, error) { return provenPolicy(ctx, node, all[0]) })
	if err != nil {
		return s, err
	}
	return j.pick(all, size)
}

// asFault returns the checkpoint fault in err, or nil.
func asFault(err error) *checkpointFault {
	fault, _ := errors.AsType[*checkpointFault](err)
	return fault
}
