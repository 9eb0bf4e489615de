/* The canonical text of a graph: one line a node,
 *
 *     %2 = mul(%0, %1) : float64[8]
 *     %3 = reduce_sum(%2) axes=[0] : float64[]
 *     return %3
 *
 * with values renumbered in order of appearance, so that equal graphs have equal texts. Dead nodes are not printed;
 * inputs always are. Attributes whose name begins with a dot only repeat the type of the result, and are left out. The
 * graphs of a node (the body of a loop, the branches of a switch) follow its line, indented, with numbers of their own.
 * With notes, each graph begins with a line "# ..." for each of its notes (note.c). With sources, a node known to come
 * from a line of the user's program ends in "  # file:line". */
#include "base/allocate.h"
#include "base/source.h"
#include "base/text.h"
#include "graph/graph.h"
#include "ops/op.h"

/* In full: integers of 64 bits have more digits than a double keeps. */
static void print_element(qb_text *text, qb_dtype dtype, const void *element)
{
    switch (dtype) {
    case QB_INT64: qb_text_add(text, "%lld", (long long)*(const int64_t *)element); break;
    case QB_UINT64: qb_text_add(text, "%llu", (unsigned long long)*(const uint64_t *)element); break;
    case QB_INT32:
    case QB_UINT32: qb_text_add(text, "%.0f", qb_dtype_load(dtype, element)); break;
    default: qb_text_add_number(text, qb_dtype_load(dtype, element), dtype == QB_FLOAT32);
    }
}

static void print_tensor(qb_text *text, const qb_tensor *tensor)
{
    enum { MOST = 16 };
    if (tensor->size > MOST) {
        qb_text_add(text, "<%lld elements>", (long long)tensor->size);
        return;
    }
    const char *data = tensor->data;
    size_t size = qb_dtype_size(tensor->dtype);
    qb_text_add(text, "%s", tensor->rank ? "[" : "");
    for (int64_t i = 0; i < tensor->size; i++) {
        qb_text_add(text, "%s", i ? ", " : "");
        print_element(text, tensor->dtype, data + (size_t)i * size);
    }
    qb_text_add(text, "%s", tensor->rank ? "]" : "");
}

static void print_attribute(qb_text *text, const char *name, const qb_attribute *attribute)
{
    if (name[0] == '.' || attribute->kind == QB_ATTRIBUTE_GRAPH || attribute->kind == QB_ATTRIBUTE_GRAPHS)
        return; /* graphs have lines of their own */
    qb_text_add(text, " %s=", name);
    switch (attribute->kind) {
    case QB_ATTRIBUTE_INT: qb_text_add(text, "%lld", (long long)attribute->integer); break;
    case QB_ATTRIBUTE_NUMBER: qb_text_add_number(text, attribute->number, false); break;
    case QB_ATTRIBUTE_INTS:
        for (int i = 0; i < attribute->count; i++)
            qb_text_add(text, "%s%lld", i ? "," : "[", (long long)attribute->integers[i]);
        qb_text_add(text, "%s", attribute->count ? "]" : "[]");
        break;
    case QB_ATTRIBUTE_TENSOR: print_tensor(text, attribute->tensor); break;
    case QB_ATTRIBUTE_GRAPH:
    case QB_ATTRIBUTE_GRAPHS: break;
    }
}

static void print_graph(qb_text *text, const qb_graph *graph, qb_text_options options, int indent);

static void print_indent(qb_text *text, int indent)
{
    for (int i = 0; i < indent; i++)
        qb_text_add(text, "  ");
}

static void print_subgraph(qb_text *text, const char *name, const qb_graph *graph, qb_text_options options, int indent)
{
    if (!graph)
        return;
    print_indent(text, indent);
    qb_text_add(text, "%s:\n", name);
    print_graph(text, graph, options, indent + 1);
}

static void print_subgraphs(qb_text *text, const qb_node *node, qb_text_options options, int indent)
{
    for (int i = 0; i < node->op->attribute_count; i++) {
        const qb_attribute *attribute = &node->attributes[i];
        if (attribute->kind == QB_ATTRIBUTE_GRAPH)
            print_subgraph(text, node->op->attribute_name[i], attribute->graph, options, indent);
        for (int k = 0; attribute->kind == QB_ATTRIBUTE_GRAPHS && k < attribute->count; k++)
            print_subgraph(text, node->op->attribute_name[i], attribute->graphs[k], options, indent);
    }
}

static void print_node(qb_text *text, const qb_graph *graph, const qb_node *node, const int32_t *number,
                       qb_text_options options, int indent)
{
    print_indent(text, indent);
    for (int i = 0; i < node->result_count; i++)
        qb_text_add(text, "%s%%%d", i ? ", " : "", (int)number[node->result + i]);
    qb_text_add(text, " = %s", node->op->name);
    for (int i = 0; i < node->operand_count; i++)
        qb_text_add(text, "%s%%%d", i ? ", " : "(", (int)number[qb_operand(graph, node, i)]);
    qb_text_add(text, "%s", node->operand_count ? ")" : "");
    if (node->op->flags & QB_OP_UNIQUE) {
        const char *name = graph->input_names[node->attributes[0].integer];
        if (name)
            qb_text_add(text, " %s", name);
    }
    for (int i = 0; i < node->op->attribute_count; i++)
        print_attribute(text, node->op->attribute_name[i], &node->attributes[i]);
    for (int i = 0; i < node->result_count; i++) {
        const qb_value_info *info = &graph->values[node->result + i];
        qb_text_add(text, "%s%s", i ? ", " : " : ", qb_print_type(info->dtype, info->rank, info->shape).text);
    }
    int line;
    const char *file = options.sources ? qb_source_find(node->source, &line) : NULL;
    if (file)
        qb_text_add(text, "  # %s:%d", file, line);
    qb_text_add(text, "\n");
    print_subgraphs(text, node, options, indent + 1);
}

static void print_notes(qb_text *text, const qb_graph *graph, int indent)
{
    for (int32_t i = 0; i < graph->note_count; i++) {
        print_indent(text, indent);
        qb_text_add(text, "# %s\n", graph->notes[i].text);
    }
}

static void print_graph(qb_text *text, const qb_graph *graph, qb_text_options options, int indent)
{
    bool *live = qb_allocate((size_t)graph->value_count);
    int32_t *number = qb_allocate((size_t)graph->value_count * sizeof *number);
    text->failed = text->failed || !live || !number;
    int32_t next = 0;
    if (options.notes)
        print_notes(text, graph, indent);
    if (!text->failed)
        qb_mark_live(graph, graph->output_count, graph->outputs, live);
    for (int32_t n = 0; n < graph->node_count && !text->failed; n++) {
        const qb_node *node = &graph->nodes[n];
        if (!live[node->result] && !(node->op->flags & QB_OP_UNIQUE))
            continue;
        for (int i = 0; i < node->result_count; i++)
            number[node->result + i] = next++;
        print_node(text, graph, node, number, options, indent);
    }
    if (!text->failed) {
        print_indent(text, indent);
        qb_text_add(text, "return");
        for (int i = 0; i < graph->output_count; i++)
            qb_text_add(text, "%s%%%d", i ? ", " : " ", (int)number[graph->outputs[i]]);
        qb_text_add(text, "\n");
    }
    qb_free(live);
    qb_free(number);
}

qb_status qb_graph_write(const qb_graph *graph, qb_text_options options, char **out)
{
    qb_text text = {0};
    print_graph(&text, graph, options, 0);
    return qb_text_take(&text, out);
}

qb_status qb_graph_text(const qb_graph *graph, char **out)
{
    return qb_graph_write(graph, (qb_text_options){0}, out);
}
