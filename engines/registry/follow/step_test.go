package follow

import (
	"errors"
	"testing"

	"ronbox/engines/registry/record"
	"ronbox/engines/registry/tables"
)

// A version that cannot be stored is a fault of the hub, not of this node.
func TestVersionThatCannotBeStored(t *testing.T) {
	run := &Run{Follower: &Follower{}}
	_, err := run.followed(&record.Artifact{ProposalID: "none", Version: 1}, &record.Payload{}, 0)
	var fault *tables.FollowFault
	var own *keepError
	if !errors.As(err, &fault) || errors.As(err, &own) || fault.State != Unsound {
		t.Errorf("%v", err)
	}
}
