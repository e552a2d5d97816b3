package main

import (
	"testing"

	"golang.org/x/tools/go/analysis/analysistest"
)

func TestLockwait(t *testing.T) {
	analysistest.Run(t, analysistest.TestData(), newLockwait(), "ronbox/held", "ronbox/below", "ronbox/above", "ronbox/excused")
}
