package record_test

import (
	"slices"

	"pgregory.net/rapid"

	"e3/internal/format/record"
)

var steps = few(rapid.Custom(func(t *rapid.T) record.Step {
	s := record.Step{
		By: texts.Draw(t, "by"), Repository: texts.Draw(t, "repository"), At: optTimes.Draw(t, "at"), Version: texts.Draw(t, "version"),
		ImportedBy: texts.Draw(t, "imported by"), ImportedAt: times.Draw(t, "imported at"),
	}
	if rapid.Bool().Draw(t, "signed") {
		s.Signer = record.Signer{Key: names.Draw(t, "key"), Name: texts.Draw(t, "name")}
	}
	return s
}))

var ids = rapid.StringMatching(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

var provenances = rapid.Custom(func(t *rapid.T) *record.Provenance {
	return &record.Provenance{Steps: steps.Draw(t, "steps")}
})

var exports = rapid.Custom(func(t *rapid.T) *record.Export {
	return &record.Export{
		By: texts.Draw(t, "by"), Repository: texts.Draw(t, "repository"), At: optTimes.Draw(t, "at"), Version: texts.Draw(t, "version"),
		Earlier: few(rapid.Custom(func(t *rapid.T) record.ExportGroup {
			return record.ExportGroup{Steps: steps.Draw(t, "steps"), Executions: few(ids).Draw(t, "executions"), Runs: few(ids).Draw(t, "runs")}
		})).Draw(t, "earlier"),
	}
})

var rejections = rapid.Custom(func(t *rapid.T) *record.Rejection {
	return &record.Rejection{Rejected: rapid.Bool().Draw(t, "rejected"), By: texts.Draw(t, "by"), At: times.Draw(t, "at"), Reason: texts.Draw(t, "reason")}
})

var signatures = rapid.Custom(func(t *rapid.T) *record.Signature {
	s := &record.Signature{}
	copy(s.Key[:], rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "key"))
	copy(s.Bytes[:], rapid.SliceOfN(rapid.Byte(), 64, 64).Draw(t, "signature"))
	return s
})

var tombstoneLists = rapid.Custom(func(t *rapid.T) record.Tombstones {
	return few(rapid.Custom(func(t *rapid.T) record.Tombstone {
		s := record.Tombstone{
			InputsHash: hashes.Draw(t, "inputs"), ExecutionID: texts.Draw(t, "id"), PrunedAt: times.Draw(t, "at"),
			By: texts.Draw(t, "by"), Reason: texts.Draw(t, "reason"),
		}
		if rapid.Bool().Draw(t, "success") {
			s.OutputHash = hashes.Draw(t, "output")
		}
		return s
	})).Draw(t, "tombstones")
})

var cancellations = rapid.Custom(func(t *rapid.T) *record.Cancellation {
	return &record.Cancellation{
		Run: texts.Draw(t, "run"), Holder: texts.Draw(t, "holder"), Since: times.Draw(t, "since"),
		By: texts.Draw(t, "by"), At: times.Draw(t, "at"), Reason: texts.Draw(t, "reason"),
	}
})

var workspaceDeployments = rapid.Custom(func(t *rapid.T) *record.WorkspaceDeployment {
	return &record.WorkspaceDeployment{
		ID: texts.Draw(t, "id"), By: texts.Draw(t, "by"), At: times.Draw(t, "at"), File: texts.Draw(t, "file"),
		Set: slices.Sorted(slices.Values(rapid.SliceOfNDistinct(texts, 0, 4, rapid.ID).Draw(t, "set"))),
	}
})

var pins = rapid.Custom(func(t *rapid.T) *record.Pin {
	return &record.Pin{
		Task: hashes.Draw(t, "task"), Inputs: hashes.Draw(t, "inputs"), By: texts.Draw(t, "by"), At: times.Draw(t, "at"), Note: texts.Draw(t, "note"),
	}
})
