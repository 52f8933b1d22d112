// Package beast2 reads and writes beast2, the binary format of East values: eight bytes of magic,
// the schema of one type, one value of it, and nothing more.
//
// There are two ways in. [Decode], [DecodeAs] and [Encode] handle any type, with a [Type] and a
// [Value]. Records of a fixed shape state their [Type] in code and keep its [Header]. They read and
// write their fields with a [Reader] and the Append functions, which is faster.
//
// # Strictness
//
// A file that decodes encodes to the same bytes. The order of dicts and sets, backreferences (in the schema too) and
// both NaNs are kept. Some forms that the reference accepts would not encode to the same bytes, and are refused:
// padded numbers, booleans above 1, repeated keys or field names, unsorted variant cases, backreferences of another
// type, strings that are not UTF-8. Unpaired low surrogates in strings are accepted, since the reference writes them.
// [Decode] reads every file that [Encode] writes.
//
// # Limits
//
// Any input gives a value or an error, in memory bounded by its length. Arrays, sets, dicts, refs,
// structs, variants and functions nest at most 32,768 deep, in a schema and in a value.
// A value has at most 65,536 Nulls and Structs, which take no bytes, and four more for each byte of
// the file. A schema with its backreferences expanded has at most 16,384 types, or as many as it has bytes.
// Schemas that contain themselves, and backreferences inside the keys of sets and dicts, are refused.
//
// # JSON
//
// [ToJSON] and [FromJSON] translate between files and the document {"type":T,"value":V}.
//
// A type is the name of a primitive (Never, Null, Boolean, Integer, Float, String, DateTime, Blob) or
// an object with one member:
//
//	{"Array":T} {"Set":T} {"Ref":T} {"Dict":[K,V]}
//	{"Struct":[[name,T],…]} {"Variant":[[case,T],…]}
//	{"Function":{"inputs":[T,…],"output":T}} {"AsyncFunction":…}
//	{"Recursive":n}
//	{"Option":T}, read as the Variant with none: Null and some: T, never written
//
// A value is written by its type:
//
//	Null               null
//	Boolean            true, false
//	Integer, DateTime  "-12", decimal in a string; DateTime counts milliseconds since 1970
//	Float              {"f":"1.5","bits":"3ff8000000000000"}; one of the two will do
//	String             "text"; \udc00 is an unpaired low surrogate
//	Blob               {"hex":"00ff"}
//	Array, Set         [V,…]
//	Dict               [[K,V],…]
//	Ref                {"ref":V}
//	Struct             {name:V,…}, in any order
//	Variant            {"case":name,"value":V}
//	functions          their IR, as a Variant
//
// A container (Array, Set, Dict, Ref) that occurs again is {"$def":label,"v":V} first and
// {"$use":label} after that. In types the lists have identity: the list of a Struct's fields, of
// a Variant's cases and of a function's inputs takes the same two forms, as in
//
//	{"Struct":[["a",{"Struct":{"$def":"t0","v":[["x","Integer"]]}}],["b",{"Struct":{"$use":"t0"}}]]}
//
// Types and values have separate labels. An unpaired high surrogate, which East strings may have and the format cannot
// express, is dropped from strings, as the reference does.
package beast2
