package appliance

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// threat is what can arrive, and what proves that the node stands it.
type threat struct {
	arrives string
	prove   func(*testing.T) // on a running node
	also    []string         // package.Test of proofs that stand elsewhere
}

// threats are all of them.
func threats() []threat {
	return []threat{
		{"slow headers or body", slowClients, []string{"httpapi/front.TestSlowHeadersDoNotStarveProbes", "httpapi.TestADripIsCut", "appliance.TestSlowloris"}},
		{"body split, cut short, client gone", brokenBodies, []string{"httpapi.TestABodySplitAnywhereIsReadAsOne"}},
		{"connection flood", connectionFlood, []string{"httpapi/front.TestFloodLeavesQuietClientsAlone", "httpapi/front.TestBookKeepsItsLimits", "appliance.TestFlood"}},
		{"oversize, lying length, chunked bomb, both framings", lyingBodies, []string{"httpapi.TestHostileBodies"}},
		{"compression bomb, nested encoding, bad stream", bombs, []string{"httpapi/inflate.TestBombs", "httpapi/inflate.FuzzReader"}},
		{"JSON that is not what it should be", all(badJSON, badPayments), []string{"httpapi.FuzzDecode", "engines.FuzzParseAmount"}},
		{"paths that lead elsewhere", badPaths, []string{"httpapi.FuzzDispatch"}},
		{"tokens that are none", badTokens, []string{"httpapi/auth.TestRefusalsTakeTheSameSteps", "httpapi/auth.TestEveryBitCounts", "httpapi/auth.TestGarbledTokens"}},
		{"tokens for something else", all(foreignGrants, foreignAccounts), []string{"httpapi/auth.TestAppendingNeverWidens", "httpapi/auth.TestEngineCaveats", "engines.TestNarrowingNeverWidens"}},
		{"replays", all(replays, replayedPayments), []string{"engines/registry.TestNoDoubleCommit", "engines/wallet.TestReplay", "engines/wallet.TestSameKeyAtOnce", "appliance.TestLoadWithDuplicates"}},
		{"more than fits", overload, []string{"engines/registry.TestFullQueueIsBusy", "httpapi.TestBusyIsCountedExactly", "engines/wallet.TestBackpressure", "engines/wallet.TestBatchRoom"}},
		{"client gone while queued", goneWhileQueued, []string{"engines/registry.TestLeavingCallers", "engines/wallet.TestClientsLeave"}},
		{"deadline passes", all(lateAnswers, latePayments), []string{"engines/registry.TestExpiredDeadlineWritesNothing", "appliance/flow.TestReplyGrace", "engines/wallet.TestDeadlines", "engines/wallet.TestUnknownThenAgain"}},
		{"slow consumers", slowConsumers, []string{"httpapi.TestStalledStreamIsClosed", "engines/registry.TestStalledReaderHoldsUpNoCommit"}},
		{"hostile origins", asksNobody, []string{"httpapi/client.TestRedirectsAreRefused", "httpapi/client.TestAnswersAreBounded"}},
		{"kill -9, power cut", powerCut, []string{"cmd/ronbox.TestKill9", "cmd/ronbox.TestKill9Wallet", "cmd/ronbox.TestPowerCut", "store.TestKill", "appliance.TestMoneySurvivesAKill"}},
		{"disk full, failed sync, short file, bit rot", badDisk, []string{"store.TestFullDisk", "store.TestFailedSyncPoisons", "store.TestDamagedFile", "cmd/ronbox.TestAnyFlippedBitIsFound", "engines/registry.TestEveryBitOfTheLogCounts", "engines/wallet.TestFullDisk"}},
		{"second process, copied lock, network disk", secondProcess, []string{"store.TestLocked", "store.TestNetworkDisk", "cmd/ronbox.TestSecondServeNamesTheFirst"}},
		{"bad configuration", badConfig, []string{"appliance/config.TestLoadRefuses", "cmd/ronbox.TestBadReloadKeepsServing"}},
		{"clock jumps back", clockJumps, []string{"store.TestStampsGrow", "httpapi/limit.TestClockJumpsBack", "engines/wallet.TestClockBehind"}},
		{"stolen snapshot", stolenSnapshot, []string{"store.TestRestoreNeedsAcceptance"}},
	}
}

// all is several proofs of one threat, each on a node of its own.
func all(proofs ...func(*testing.T)) func(*testing.T) {
	return func(t *testing.T) {
		for _, prove := range proofs {
			prove(t)
		}
	}
}

// Whatever arrives: the answer, what is counted of it, and what it leaves untouched.
func TestThreats(t *testing.T) {
	for _, row := range threats() {
		t.Run(row.arrives, func(t *testing.T) {
			row.prove(t)
		})
	}
}

// Every threat has its proof on a running node, and the proofs elsewhere that the table names are there.
func TestThreatsAreProven(t *testing.T) {
	tests := map[string]map[string]bool{}
	seen := map[string]bool{}
	for _, row := range threats() {
		if row.prove == nil || seen[row.arrives] {
			t.Errorf("%s: no proof, or two", row.arrives)
		}
		seen[row.arrives] = true
		for _, proof := range row.also {
			dir, name, _ := strings.Cut(proof, ".")
			if tests[dir] == nil {
				tests[dir] = testsOf(t, dir)
			}
			if !tests[dir][name] {
				t.Errorf("%s: there is no %s in %s", row.arrives, name, dir)
			}
		}
	}
	if len(seen) != 21 {
		t.Errorf("%d threats", len(seen))
	}
}

// testsOf lists the test functions of a package.
func testsOf(t *testing.T, dir string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", dir, "*_test.go"))
	must(t, err)
	out := map[string]bool{}
	for _, path := range files {
		raw, err := os.ReadFile(path)
		must(t, err)
		f, err := parser.ParseFile(token.NewFileSet(), path, raw, parser.SkipObjectResolution)
		must(t, err)
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil {
				out[fn.Name.Name] = true
			}
		}
	}
	return out
}
