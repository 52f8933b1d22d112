package repo

import (
	"errors"
	"strings"

	"e3/objectstore/s3"
	"e3/refstore/dynamo"
	"e3/refstore/postgres"
)

// A Denial says which right a request to a shared repository needs that the credentials do not have.
type Denial struct {
	Right string // the action, as in "dynamodb:PutItem" or "DELETE"
	On    string // the table, database, bucket or object of the request
	Role  string // the least of the roles of doc/rights.md that has it: reader, writer or administrator
}

// administered are the kinds of records that administrators alone write.
var administered = map[string]bool{"SETTINGS": true, "FORMAT": true, "TOMBSTONE": true}

// kept are the kinds of records that administrators alone delete.
var kept = map[string]bool{"EXECUTION": true, "INPUTS": true, "RUNS": true, "TASKS": true, "LOG": true}

// Denied returns the right that is missing if an error says that access to a shared repository was denied.
func Denied(err error) (Denial, bool) {
	if d := (*dynamo.DeniedError)(nil); errors.As(err, &d) {
		kind, _, _ := strings.Cut(d.Partition, "/")
		denial := Denial{Right: d.Right, On: "the table " + d.Table, Role: "writer"}
		if kind != "" {
			denial.On = kind + " records of " + denial.On
		}
		switch action := strings.TrimPrefix(d.Right, "dynamodb:"); {
		case administered[kind], kept[kind] && action == "DeleteItem":
			denial.Role = "administrator"
		case action == "GetItem", action == "Query":
			denial.Role = "reader"
		}
		return denial, true
	}
	if d := (*postgres.DeniedError)(nil); errors.As(err, &d) {
		kind, _, _ := strings.Cut(d.Partition, "/")
		denial := Denial{Right: "INSERT and UPDATE", On: kind + " rows of the database " + d.Database, Role: "writer"}
		switch {
		case kind == "":
			denial = Denial{Right: "SELECT", On: "the database " + d.Database, Role: "reader"}
		case d.Operation == "delete":
			denial.Right = "DELETE"
		}
		if administered[kind] || kept[kind] && d.Operation == "delete" {
			denial.Role = "administrator"
		}
		return denial, true
	}
	if e := (*s3.Error)(nil); errors.As(err, &e) && e.Right != "" {
		denial := Denial{Right: e.Right, On: s3Scheme + "://" + e.Bucket + "/" + e.Key, Role: "writer"}
		switch {
		case e.Right == "s3:GetObject", e.Right == "s3:ListBucket":
			denial.Role = "reader"
		case e.Right == "s3:DeleteObject" && strings.Contains(e.Key, "/objects/"), e.Right == "s3:ListBucketMultipartUploads",
			strings.HasSuffix(e.Key, "/"+ownerBlob):
			denial.Role = "administrator"
		}
		return denial, true
	}
	return Denial{}, false
}
