package rverify

import (
	"context"
	"fmt"
	"testing"
)

// Verify checks a log from its first version to its head: every link, hash, approval and quorum. A
// log that was changed afterwards does not verify, and the report names the version.
func ExampleVerify() {
	log := newLog(new(testing.T), 2, 3).fill(new(testing.T), 4, 2) // 3 signers, 2 approve each version
	report, err := Verify(context.Background(), log, Options{})
	fmt.Println(report.OK, report.Versions, "versions", report.Approvals, "approvals", err)

	log.payloads[3][10] ^= 1
	report, err = Verify(context.Background(), log, Options{})
	fmt.Println(report.OK, report.Problem.Kind, "at version", report.Problem.Version, err)
	// Output:
	// true 5 versions 11 approvals <nil>
	// false chain at version 3 <nil>
}
