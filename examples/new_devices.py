"""A device that joins after training predicts its label; it releases nothing."""

import lumos
from lumos.runs.predict import NewDevice, predict_new_devices

graph = lumos.load("demo:600")
run = lumos.train(graph)

# Stands for the new device's own features [feature_count] and the ids of its neighbours.
features = graph.to_pyg().x.to_dense().numpy()[17]
first, last = graph.offsets[17:19]
neighbours = tuple(str(graph.ids[device]) for device in graph.neighbours[first:last])

new_device = NewDevice(id="new", features=features, neighbours=neighbours)
chances, _ = predict_new_devices(run, [new_device])  # [new devices, classes]
print(run.class_names[chances[0].argmax()], f"{chances[0].max():.2f}")
