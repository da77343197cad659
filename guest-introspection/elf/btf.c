#include "guest-introspection/elf/btf.h"

#include "base/cleanup.h"

#include <stdlib.h>
#include <string.h>

/* The header (include/uapi/linux/btf.h), then a section of types and one of strings:
 *
 *   magic u16 | version u8 | flags u8 | hdr_len u32 | type_off | type_len | str_off | str_len
 *
 * A type is name_off u32, info u32 (vlen 0-15, kind 24-28, kind_flag 31), size or type u32, and
 * what its kind has behind that. Types are numbered from 1 in their order; 0 is void. */
#define HEADER_LIMIT 256 /* it has grown before; a longer one is a damaged one */
#define TYPE_SIZE 12
#define MEMBER_SIZE 12
#define MAGIC 0xeb9f
#define MAGIC_SWAPPED 0x9feb
#define VERSION 1
#define INFO_KNOWN UINT32_C(0x9f00ffff)

enum kind {
	KIND_INT = 1,
	KIND_POINTER,
	KIND_ARRAY,
	KIND_STRUCT,
	KIND_UNION,
	KIND_ENUM,
	KIND_FORWARD,
	KIND_TYPEDEF,
	KIND_VOLATILE,
	KIND_CONST,
	KIND_RESTRICT,
	KIND_FUNCTION,
	KIND_FUNCTION_PROTOTYPE,
	KIND_VARIABLE,
	KIND_DATA_SECTION,
	KIND_FLOAT,
	KIND_DECLARATION_TAG,
	KIND_TYPE_TAG,
	KIND_ENUM64,
	KINDS,
};

/* What follows the common part of a type: `fixed` bytes, and `element` for each of vlen. */
static const struct {
	uint8_t fixed;
	uint8_t element;
} shapes[KINDS] = {
	[KIND_INT] = {4, 0},
	[KIND_ARRAY] = {12, 0},
	[KIND_STRUCT] = {0, MEMBER_SIZE},
	[KIND_UNION] = {0, MEMBER_SIZE},
	[KIND_ENUM] = {0, 8},
	[KIND_FUNCTION_PROTOTYPE] = {0, 8},
	[KIND_VARIABLE] = {4, 0},
	[KIND_DATA_SECTION] = {0, 12},
	[KIND_DECLARATION_TAG] = {4, 0},
	[KIND_ENUM64] = {0, 12},
};

/* Bounds for what forged types could make long. Chains of modifiers and arrays of arrays in a
 * kernel are 3 long, anonymous structures lie 4 deep. */
#define CHAIN_LIMIT 32
#define DEPTH_LIMIT 16
#define SEARCH_WORK (1u << 16)
#define HASHED_LENGTH 64 /* all of a hashed name may be a section long */
#define PATH_LIMIT 256

#define BUCKETS 16384u

struct btf {
	uint8_t *bytes; /* owned */
	const uint8_t *types;
	uint32_t types_size;
	const char *strings; /* the last byte is a zero */
	uint32_t strings_size;
	uint32_t count;    /* of types, void included */
	uint32_t *offsets; /* of type `id` in `types`; [0] is unused */
	/* Structures, unions and their typedefs by name: the first id of a bucket, the next of
	 * an id. Ids rise; 0 ends. */
	uint32_t *next;
	uint32_t buckets[BUCKETS];
};

struct type {
	uint32_t name;
	enum kind kind;
	bool kind_flag;
	uint32_t length;     /* elements in `body` */
	uint32_t size;       /* or the id of a type */
	const uint8_t *body; /* behind the common part; all of it is there */
};

static uint32_t get_u32(const uint8_t *bytes)
{
	uint32_t value;

	memcpy(&value, bytes, sizeof(value));
	return value;
}

/* The type at `bytes`, of which the common part is there. */
static struct type decode(const uint8_t *bytes)
{
	uint32_t info = get_u32(bytes + 4);

	return (struct type){.name = get_u32(bytes),
			     .kind = info >> 24 & 0x1f,
			     .kind_flag = info >> 31,
			     .length = info & 0xffff,
			     .size = get_u32(bytes + 8),
			     .body = bytes + TYPE_SIZE};
}

static struct type type_at(const struct btf *btf, uint32_t id)
{
	return decode(btf->types + btf->offsets[id]);
}

/* Unions and structures alike. */
static bool is_aggregate(enum kind kind)
{
	return kind == KIND_STRUCT || kind == KIND_UNION;
}

static bool is_modifier(enum kind kind)
{
	return kind == KIND_TYPEDEF || kind == KIND_VOLATILE || kind == KIND_CONST ||
	       kind == KIND_RESTRICT || kind == KIND_TYPE_TAG;
}

/* Does the `size or type` of this kind name a type? */
static bool refers(enum kind kind)
{
	return is_modifier(kind) || kind == KIND_POINTER || kind == KIND_FUNCTION ||
	       kind == KIND_FUNCTION_PROTOTYPE || kind == KIND_VARIABLE ||
	       kind == KIND_DECLARATION_TAG;
}

/* FNV-1a. Who forges collisions makes look-ups of ours fail when their work is used up. */
static uint32_t hash_name(const char *name)
{
	uint32_t hash = UINT32_C(2166136261);

	for (unsigned i = 0; i < HASHED_LENGTH && name[i]; i++)
		hash = (hash ^ (uint8_t)name[i]) * UINT32_C(16777619);
	return (hash ^ hash >> 16) % BUCKETS;
}

/* The highest type id that `type` mentions, and its names' highest offset. */
static void survey(const struct type *type, uint32_t *id, uint32_t *name)
{
	/* Elements begin with a name, and their second word is a type: members and
	 * parameters. In enumerations it is a value; a data section has types only. */
	const bool named = is_aggregate(type->kind) || type->kind == KIND_ENUM ||
			   type->kind == KIND_ENUM64 || type->kind == KIND_FUNCTION_PROTOTYPE;
	const bool typed = is_aggregate(type->kind) || type->kind == KIND_FUNCTION_PROTOTYPE;

	*name = type->name;
	*id = refers(type->kind) ? type->size : 0;
	if (type->kind == KIND_ARRAY) {
		uint32_t element = get_u32(type->body);
		uint32_t index = get_u32(type->body + 4);

		*id = element > index ? element : index;
	}
	for (uint32_t i = 0; i < type->length && shapes[type->kind].element; i++) {
		const uint8_t *element = type->body + (size_t)i * shapes[type->kind].element;
		uint32_t first = get_u32(element);
		uint32_t second = get_u32(element + 4);

		if (named && first > *name)
			*name = first;
		if (typed && second > *id)
			*id = second;
		if (type->kind == KIND_DATA_SECTION && first > *id)
			*id = first;
	}
}

/* Goes through all types once: `offsets`, `count`, and whether everything lies inside. */
static gp_status_t index_types(struct btf *btf, struct error *error)
{
	uint32_t highest = 0;
	uint32_t at = 0;

	btf->count = 1;
	while (at < btf->types_size) {
		uint32_t left = btf->types_size - at;
		uint32_t info, name, id;
		uint64_t size;
		struct type type;

		if (left < TYPE_SIZE)
			return error_set(error, GP_ERR_NOT_FOUND, "BTF: type %u is cut off",
					 btf->count);
		info = get_u32(btf->types + at + 4);
		type = decode(btf->types + at);
		if ((info & ~INFO_KNOWN) || type.kind == 0 || type.kind >= KINDS)
			return error_set(error, GP_ERR_NOT_FOUND,
					 "BTF: type %u is of a kind that is not known (info 0x%x)",
					 btf->count, info);
		size = TYPE_SIZE + shapes[type.kind].fixed +
		       (uint64_t)type.length * shapes[type.kind].element;
		if (size > left)
			return error_set(error, GP_ERR_NOT_FOUND, "BTF: type %u is cut off",
					 btf->count);
		survey(&type, &id, &name);
		if (name >= btf->strings_size)
			return error_set(error, GP_ERR_NOT_FOUND,
					 "BTF: type %u has a name outside the strings, as the BTF "
					 "of a module has",
					 btf->count);
		if (id > highest)
			highest = id;
		btf->offsets[btf->count++] = at;
		at += (uint32_t)size;
	}
	if (highest >= btf->count)
		return error_set(error, GP_ERR_NOT_FOUND,
				 "BTF: type %u of %u is referred to, as the BTF of a module does",
				 highest, btf->count);
	return GP_OK;
}

static void index_names(struct btf *btf)
{
	for (uint32_t id = btf->count - 1; id > 0; id--) {
		struct type type = type_at(btf, id);
		uint32_t *bucket;

		if ((!is_aggregate(type.kind) && type.kind != KIND_TYPEDEF) || type.name == 0)
			continue;
		bucket = &btf->buckets[hash_name(btf->strings + type.name)];
		btf->next[id] = *bucket;
		*bucket = id;
	}
}

struct header {
	uint32_t size; /* of itself */
	uint32_t type_offset, type_size;
	uint32_t string_offset, string_size;
	uint64_t total;
};

/* `bytes` holds BTF_HEADER_SIZE bytes. */
static gp_status_t read_header(const uint8_t *bytes, struct header *out, struct error *error)
{
	struct header header = {.size = get_u32(bytes + 4),
				.type_offset = get_u32(bytes + 8),
				.type_size = get_u32(bytes + 12),
				.string_offset = get_u32(bytes + 16),
				.string_size = get_u32(bytes + 20)};
	uint32_t magic = bytes[0] | (uint32_t)bytes[1] << 8;
	uint64_t types_end = (uint64_t)header.type_offset + header.type_size;
	uint64_t strings_end = (uint64_t)header.string_offset + header.string_size;

	if (magic == MAGIC_SWAPPED)
		return error_set(error, GP_ERR_NOT_FOUND, "BTF of a big-endian machine");
	if (magic != MAGIC)
		return error_set(error, GP_ERR_NOT_FOUND, "no BTF: magic 0x%04x", magic);
	if (bytes[2] != VERSION)
		return error_set(error, GP_ERR_NOT_FOUND, "BTF version %u is not known", bytes[2]);
	header.total = header.size + (types_end > strings_end ? types_end : strings_end);
	if (header.size < BTF_HEADER_SIZE || header.size > HEADER_LIMIT || header.type_offset % 4 ||
	    header.string_size == 0 || header.total > BTF_LIMIT)
		return error_set(error, GP_ERR_NOT_FOUND,
				 "a damaged BTF header: %u bytes, types %u+%u, strings %u+%u",
				 header.size, header.type_offset, header.type_size,
				 header.string_offset, header.string_size);
	*out = header;
	return GP_OK;
}

size_t btf_blob_size(const uint8_t bytes[static BTF_HEADER_SIZE])
{
	struct header header;

	if (read_header(bytes, &header, NULL) != GP_OK || header.type_offset != 0 ||
	    header.string_offset != header.type_size || header.type_size < TYPE_SIZE)
		return 0;
	return header.total;
}

gp_status_t btf_adopt(void *blob, size_t size, struct btf **out, struct error *error)
{
	uint8_t *bytes = blob;
	struct header header;
	struct btf *btf = NULL;
	gp_status_t status;
	size_t room;

	if (size < BTF_HEADER_SIZE) {
		status = error_set(error, GP_ERR_NOT_FOUND, "no BTF in %zu bytes", size);
		goto failed;
	}
	status = read_header(bytes, &header, error);
	if (status != GP_OK)
		goto failed;
	if (header.total > size) {
		status = error_set(error, GP_ERR_NOT_FOUND, "BTF of %llu bytes is cut to %zu",
				   (unsigned long long)header.total, size);
		goto failed;
	}
	btf = calloc(1, sizeof(*btf));
	if (!btf) {
		status = error_set(error, GP_ERR_NO_MEMORY, "no memory to parse BTF");
		goto failed;
	}
	btf->bytes = bytes;
	bytes = NULL;
	btf->types = btf->bytes + header.size + header.type_offset;
	btf->types_size = header.type_size;
	btf->strings = (const char *)btf->bytes + header.size + header.string_offset;
	btf->strings_size = header.string_size;
	/* A module's strings and types continue those of vmlinux ("split" BTF). */
	if (btf->strings[0] != 0 || btf->strings[btf->strings_size - 1] != 0) {
		status = error_set(error, GP_ERR_NOT_FOUND,
				   "BTF: the strings are damaged, or those of a module");
		goto failed;
	}
	room = btf->types_size / TYPE_SIZE + 1;
	btf->offsets = malloc(room * sizeof(*btf->offsets));
	status = btf->offsets ? index_types(btf, error) : GP_ERR_NO_MEMORY;
	if (status == GP_OK)
		btf->next = calloc(btf->count, sizeof(*btf->next));
	if (!btf->offsets || (status == GP_OK && !btf->next))
		status = error_set(error, GP_ERR_NO_MEMORY, "no memory to index BTF");
	if (status != GP_OK)
		goto failed;
	index_names(btf);
	*out = btf;
	return GP_OK;
failed:
	free(bytes);
	btf_destroy(btf);
	return status;
}

void btf_destroy(struct btf *btf)
{
	if (!btf)
		return;
	free(btf->bytes);
	free(btf->offsets);
	free(btf->next);
	free(btf);
}

/* Follows typedefs and qualifiers. */
static bool strip(const struct btf *btf, uint32_t id, struct type *out)
{
	for (unsigned i = 0; i < CHAIN_LIMIT && id != 0; i++) {
		struct type type = type_at(btf, id);

		if (!is_modifier(type.kind)) {
			*out = type;
			return true;
		}
		id = type.size;
	}
	return false;
}

/* Bytes of an object of type `id`, the elements of its outermost array. */
static bool measure(const struct btf *btf, uint32_t id, uint32_t *size, uint32_t *elements)
{
	uint64_t times = 1;
	uint32_t outermost = 1;
	struct type type;
	uint64_t bytes;

	for (unsigned i = 0;; i++) {
		uint32_t length;

		if (i == CHAIN_LIMIT || !strip(btf, id, &type))
			return false;
		if (type.kind != KIND_ARRAY)
			break;
		length = get_u32(type.body + 8);
		if (i == 0)
			outermost = length;
		times *= length;
		if (times > UINT32_MAX)
			return false;
		id = get_u32(type.body);
	}
	switch (type.kind) {
	case KIND_POINTER:
		bytes = 8;
		break;
	case KIND_INT:
	case KIND_STRUCT:
	case KIND_UNION:
	case KIND_ENUM:
	case KIND_ENUM64:
	case KIND_FLOAT:
		bytes = type.size;
		break;
	default: /* a function, or a structure that is only declared */
		return false;
	}
	/* Both factors are below 2^32. */
	if (bytes * times > UINT32_MAX)
		return false;
	*size = (uint32_t)(bytes * times);
	*elements = outermost;
	return true;
}

/* A member as it was found. */
struct found {
	uint64_t bit_offset; /* from the start of the outermost structure */
	uint32_t type;
	uint32_t bits; /* of a bit field, else 0 */
};

static struct found decode_member(const struct btf *btf, const struct type *parent, uint32_t index,
				  uint64_t base)
{
	const uint8_t *member = parent->body + (size_t)index * MEMBER_SIZE;
	uint32_t offset = get_u32(member + 8);
	struct found found = {.type = get_u32(member + 4)};
	struct type type;

	if (parent->kind_flag) {
		found.bits = offset >> 24;
		offset &= 0xffffff;
	} else if (strip(btf, found.type, &type) && type.kind == KIND_INT) {
		/* The older way: an integer type that is narrower than its bytes. */
		uint32_t encoding = get_u32(type.body);
		uint32_t bits = encoding & 0xff;

		if ((uint64_t)bits != (uint64_t)type.size * 8) {
			found.bits = bits;
			offset += encoding >> 16 & 0xff;
		}
	}
	found.bit_offset = base + offset;
	return found;
}

/* The position of the search in one of the structures that lie in each other. */
struct level {
	struct type type;
	uint32_t next; /* member */
	uint64_t base; /* bits */
};

/* The member `name`, `length` characters long, of `type` or of anonymous structures in it. */
static bool find_in(const struct btf *btf, const struct type *type, uint64_t base, const char *name,
		    size_t length, uint32_t *work, struct found *out)
{
	struct level levels[DEPTH_LIMIT];
	unsigned depth = 1;

	levels[0] = (struct level){.type = *type, .base = base};
	while (depth > 0 && *work > 0) {
		struct level *level = &levels[depth - 1];
		const char *found_name;
		struct found found;
		struct type inner;
		uint32_t name_offset;

		if (level->next == level->type.length) {
			depth--;
			continue;
		}
		--*work;
		name_offset = get_u32(level->type.body + (size_t)level->next * MEMBER_SIZE);
		found_name = btf->strings + name_offset;
		if (name_offset != 0 &&
		    (strncmp(found_name, name, length) != 0 || found_name[length] != 0)) {
			level->next++;
			continue;
		}
		found = decode_member(btf, &level->type, level->next++, level->base);
		if (name_offset == 0) {
			if (depth < DEPTH_LIMIT && strip(btf, found.type, &inner) &&
			    is_aggregate(inner.kind))
				levels[depth++] =
					(struct level){.type = inner, .base = found.bit_offset};
		} else {
			*out = found;
			return true;
		}
	}
	return false;
}

/* `path` in the structure `type`. */
static bool find_path(const struct btf *btf, const struct type *type, const char *path,
		      uint32_t *work, struct btf_member *out)
{
	struct type inside = *type;
	struct found found = {0};
	struct btf_member member = {0};
	uint64_t end;

	for (;;) {
		size_t length = strcspn(path, ".");

		if (!is_aggregate(inside.kind) || length == 0 ||
		    !find_in(btf, &inside, found.bit_offset, path, length, work, &found))
			return false;
		if (path[length] == 0)
			break;
		path += length + 1;
		if (!strip(btf, found.type, &inside))
			return false;
	}
	if (found.bits) {
		member.bit_offset = found.bit_offset % 8;
		member.bits = found.bits;
		member.size = (member.bit_offset + member.bits + 7) / 8;
		member.elements = 1;
		if (found.bits > 64)
			return false;
	} else if (found.bit_offset % 8 ||
		   !measure(btf, found.type, &member.size, &member.elements)) {
		return false;
	}
	end = found.bit_offset / 8 + member.size;
	if (end > type->size)
		return false;
	member.offset = (uint32_t)(found.bit_offset / 8);
	*out = member;
	return true;
}

/* The next structure called `name` from `id` on, and moves `id` on; false: there is none. */
static bool next_named(const struct btf *btf, const char *name, uint32_t *id, uint32_t *work,
		       struct type *out)
{
	while (*id != 0 && *work > 0) {
		struct type type = type_at(btf, *id);
		uint32_t this_one = *id;

		--*work;
		*id = btf->next[*id];
		if (strcmp(btf->strings + type.name, name) == 0 && strip(btf, this_one, out) &&
		    is_aggregate(out->kind))
			return true;
	}
	return false;
}

bool btf_find_member(const struct btf *btf, const char *structure, const char *path,
		     struct btf_member *out)
{
	uint32_t id = btf->buckets[hash_name(structure)];
	uint32_t work = SEARCH_WORK;
	struct type type;

	if (strlen(path) > PATH_LIMIT)
		return false;
	/* Two source files may have structures of one name. */
	while (next_named(btf, structure, &id, &work, &type))
		if (find_path(btf, &type, path, &work, out))
			return true;
	return false;
}

bool btf_find_size(const struct btf *btf, const char *name, uint32_t *size)
{
	uint32_t id = btf->buckets[hash_name(name)];
	uint32_t work = SEARCH_WORK;
	struct type type;

	if (!next_named(btf, name, &id, &work, &type))
		return false;
	*size = type.size;
	return true;
}

bool btf_find_enumerator(const struct btf *btf, const char *name, int64_t *value)
{
	for (uint32_t id = 1; id < btf->count; id++) {
		struct type type = type_at(btf, id);

		if (type.kind != KIND_ENUM && type.kind != KIND_ENUM64)
			continue;
		for (uint32_t i = 0; i < type.length; i++) {
			const uint8_t *element = type.body + (size_t)i * shapes[type.kind].element;
			uint32_t low = get_u32(element + 4);

			if (strcmp(btf->strings + get_u32(element), name) != 0)
				continue;
			if (type.kind == KIND_ENUM64)
				*value = (int64_t)((uint64_t)get_u32(element + 8) << 32 | low);
			else /* kind_flag: signed */
				*value = type.kind_flag ? (int32_t)low : (int64_t)low;
			return true;
		}
	}
	return false;
}
