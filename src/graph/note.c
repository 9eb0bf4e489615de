/* Notes: lines about how a graph came to be, such as which mode of differentiation was chosen. They are no part of
 * what it computes: they follow a graph through every rewriting (replay.c copies them), are printed on request, and
 * neither comparing nor hashing looks at them. */
#include "graph/graph.h"

#include "base/allocate.h"

static uint32_t hash_of(const char *text)
{
    uint32_t hash = 2166136261u;
    for (const char *c = text; *c; c++)
        hash = (hash ^ (unsigned char)*c) * 16777619u; /* FNV */
    return hash;
}

static bool has(const qb_graph *graph, const qb_note *note)
{
    for (int32_t i = 0; i < graph->note_count; i++)
        if (graph->notes[i].hash == note->hash && strcmp(graph->notes[i].text, note->text) == 0)
            return true;
    return false;
}

static qb_status add(qb_graph *graph, const qb_note *note)
{
    if (has(graph, note))
        return QB_OK;
    size_t size = strlen(note->text) + 1;
    char *copy = qb_arena_allocate(&graph->arena, size);
    if (!copy || !QB_GROW(graph->notes, graph->note_count, graph->note_capacity, 1))
        return qb_fail_memory();
    memcpy(copy, note->text, size);
    graph->notes[graph->note_count++] = (qb_note){copy, note->hash};
    return QB_OK;
}

qb_status qb_graph_note(qb_graph *graph, const char *text)
{
    return add(graph, &(qb_note){text, hash_of(text)});
}

qb_status qb_graph_copy_notes(const qb_graph *source, qb_graph *target)
{
    for (int32_t i = 0; source != target && i < source->note_count; i++)
        QB_TRY(add(target, &source->notes[i]));
    return QB_OK;
}
