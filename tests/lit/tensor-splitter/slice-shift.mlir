// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB --no-reassociate | filecheck %s

// Next-token shift: one reader leaves the last row out, another the first; no tile is masked or read twice.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[A:[^:]*]]: tensor<257x4xf32>, %[[B:[^:]*]]: tensor<200x4xf32>, %[[V:[^:]*]]: tensor<200xf32>, %[[W:[^:]*]]: tensor<200xf32>
// CHECK-NOT: 257x200x

// Row 0 has no place in the second result.
// CHECK: %[[FIRST:.*]] = stablehlo.dynamic_slice %[[A]], {{.*}}, sizes = [1, 4]
// CHECK: stablehlo.dot_general %[[FIRST]], %[[B]]
// CHECK: stablehlo.dot_general %{{.*}}, %[[V]], contracting_dims = [1] x [0] : {{.*}} -> tensor<1xf32>
// CHECK-NOT: stablehlo.dot_general %{{.*}}, %[[W]]

// Rows 1 to 240: the same tile at its own place in the first result, and one row up in the second.
// CHECK: %[[LOOP:.*]]:3 = stablehlo.while(%[[I:.*]] = {{.*}}, %[[LEFT:.*]] = {{.*}}, %[[RIGHT:.*]] = {{.*}})
// CHECK: %[[START:.*]] = stablehlo.multiply %[[I]], {{.*}}
// CHECK: %[[PLACE:.*]] = stablehlo.add %[[START]], {{.*}}
// CHECK: %[[ROWS:.*]] = stablehlo.dynamic_slice %[[A]], %[[PLACE]], {{.*}}, sizes = [40, 4]
// CHECK: stablehlo.dot_general %[[ROWS]], %[[B]]
// CHECK: %[[V_TILE:.*]] = stablehlo.dot_general %{{.*}}, %[[V]], {{.*}} -> tensor<40xf32>
// CHECK: stablehlo.dynamic_update_slice %[[LEFT]], %[[V_TILE]], %[[PLACE]]
// CHECK: %[[SHIFTED:.*]] = stablehlo.add %[[PLACE]], {{.*}}
// CHECK: %[[W_TILE:.*]] = stablehlo.dot_general %{{.*}}, %[[W]], {{.*}} -> tensor<40xf32>
// CHECK: stablehlo.dynamic_update_slice %[[RIGHT]], %[[W_TILE]], %[[SHIFTED]]

// Rows 241 to 255 for both.
// CHECK: stablehlo.dynamic_slice %[[A]], {{.*}}, sizes = [15, 4]
// CHECK: %[[V_TAIL:.*]] = stablehlo.dot_general %{{.*}}, %[[V]], {{.*}} -> tensor<15xf32>
// CHECK: %[[V_ALL:.*]] = stablehlo.dynamic_update_slice %[[LOOP]]#1, %[[V_TAIL]]
// CHECK: %[[W_TAIL:.*]] = stablehlo.dot_general %{{.*}}, %[[W]], {{.*}} -> tensor<15xf32>
// CHECK: %[[W_MOST:.*]] = stablehlo.dynamic_update_slice %[[LOOP]]#2, %[[W_TAIL]]

// Row 256 has no place in the first result.
// CHECK: stablehlo.dynamic_slice %[[A]], {{.*}}, sizes = [1, 4]
// CHECK-NOT: stablehlo.dot_general %{{.*}}, %[[V]]
// CHECK: %[[LAST:.*]] = stablehlo.dot_general %{{.*}}, %[[W]], {{.*}} -> tensor<1xf32>
// CHECK: %[[W_ALL:.*]] = stablehlo.dynamic_update_slice %[[W_MOST]], %[[LAST]]
// CHECK-NOT: 257x200x
// CHECK: return %[[V_ALL]], %[[W_ALL]]

func.func @main(%a: tensor<257x4xf32>, %b: tensor<200x4xf32>, %v: tensor<200xf32>, %w: tensor<200xf32>) -> (tensor<256xf32>, tensor<256xf32>) {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [1] : (tensor<257x4xf32>, tensor<200x4xf32>) -> tensor<257x200xf32>
  %1 = stablehlo.exponential %0 : tensor<257x200xf32>
  %2 = stablehlo.slice %1 [0:256, 0:200] : (tensor<257x200xf32>) -> tensor<256x200xf32>
  %3 = stablehlo.slice %1 [1:257, 0:200] : (tensor<257x200xf32>) -> tensor<256x200xf32>
  %4 = stablehlo.dot_general %2, %v, contracting_dims = [1] x [0] : (tensor<256x200xf32>, tensor<200xf32>) -> tensor<256xf32>
  %5 = stablehlo.dot_general %3, %w, contracting_dims = [1] x [0] : (tensor<256x200xf32>, tensor<200xf32>) -> tensor<256xf32>
  return %4, %5 : tensor<256xf32>, tensor<256xf32>
}
